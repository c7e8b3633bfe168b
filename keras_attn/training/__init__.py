"""What `model.compile` and `model.fit` need besides a model: schedule, loss, metric
and callback for models that predict tokens; and what of a model is to be trained."""

from keras_attn.training.bleu_callback import BleuCallback
from keras_attn.training.freeze import freeze, unfreeze
from keras_attn.training.inverse_square_root_schedule import InverseSquareRootSchedule
from keras_attn.training.layerwise_decay import layerwise_decay
from keras_attn.training.layerwise_optimizer import LayerwiseOptimizer
from keras_attn.training.lora import enable_lora, merge_lora, remove_lora
from keras_attn.training.masked_accuracy import MaskedAccuracy
from keras_attn.training.masked_crossentropy import MaskedCrossentropy

__all__ = [
    "BleuCallback",
    "InverseSquareRootSchedule",
    "LayerwiseOptimizer",
    "MaskedAccuracy",
    "MaskedCrossentropy",
    "enable_lora",
    "freeze",
    "layerwise_decay",
    "merge_lora",
    "remove_lora",
    "unfreeze",
]
