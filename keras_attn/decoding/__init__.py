"""Generation with a cache, derived from the training model."""

from keras_attn.decoding.generate import generate
from keras_attn.decoding.greedy_search import GreedySearch
from keras_attn.decoding.step_model import StepModel, step_model

__all__ = ["GreedySearch", "StepModel", "generate", "step_model"]
