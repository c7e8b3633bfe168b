"""Losses, metrics, schedules, callbacks and fine-tuning tools for token models."""

from keras_attn.training.callbacks import BleuCallback
from keras_attn.training.fine_tuning.freeze import freeze, unfreeze
from keras_attn.training.fine_tuning.layerwise_decay import layerwise_decay
from keras_attn.training.fine_tuning.layerwise_optimizer import LayerwiseOptimizer
from keras_attn.training.fine_tuning.lora import enable_lora, merge_lora, remove_lora
from keras_attn.training.losses import MaskedCrossentropy
from keras_attn.training.metrics import MaskedAccuracy
from keras_attn.training.muon import Muon
from keras_attn.training.schedules import InverseSquareRootSchedule
from keras_attn.training.weight_decay import exclude_from_weight_decay

__all__ = [
    "BleuCallback",
    "InverseSquareRootSchedule",
    "LayerwiseOptimizer",
    "MaskedAccuracy",
    "MaskedCrossentropy",
    "Muon",
    "enable_lora",
    "exclude_from_weight_decay",
    "freeze",
    "layerwise_decay",
    "merge_lora",
    "remove_lora",
    "unfreeze",
]
