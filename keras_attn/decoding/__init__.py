"""Decoding: cached generation derived from the training model."""

from keras_attn.decoding.beam_search import BeamSearch
from keras_attn.decoding.generate import generate
from keras_attn.decoding.greedy_search import GreedySearch
from keras_attn.decoding.sampling import Sampling
from keras_attn.decoding.step_model import StepModel, step_model
from keras_attn.decoding.strategy import Strategy
from keras_attn.decoding.stream import stream

__all__ = [
    "BeamSearch",
    "GreedySearch",
    "Sampling",
    "StepModel",
    "Strategy",
    "generate",
    "step_model",
    "stream",
]
