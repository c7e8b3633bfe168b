"""What `model.compile` and `model.fit` need besides a model: schedule, loss, metric
and callback for models that predict tokens."""

from keras_attn.training.bleu_callback import BleuCallback
from keras_attn.training.inverse_square_root_schedule import InverseSquareRootSchedule
from keras_attn.training.masked_accuracy import MaskedAccuracy
from keras_attn.training.masked_crossentropy import MaskedCrossentropy

__all__ = [
    "BleuCallback",
    "InverseSquareRootSchedule",
    "MaskedAccuracy",
    "MaskedCrossentropy",
]
