"""Decoding: cached generation that is derived from the training model."""

from keras_attn.decoding.config import GenerationConfig
from keras_attn.decoding.generate import generate
from keras_attn.decoding.step.step_model import StepModel, step_model
from keras_attn.decoding.strategies.base import Strategy
from keras_attn.decoding.strategies.beam_search import BeamSearch
from keras_attn.decoding.strategies.greedy_search import GreedySearch
from keras_attn.decoding.strategies.sampling import Sampling
from keras_attn.decoding.stream import stream
from keras_attn.layers._internal.cached_layer import CachedLayer, ContextLayer

__all__ = [
    "BeamSearch",
    "CachedLayer",
    "ContextLayer",
    "GenerationConfig",
    "GreedySearch",
    "Sampling",
    "StepModel",
    "Strategy",
    "generate",
    "step_model",
    "stream",
]
