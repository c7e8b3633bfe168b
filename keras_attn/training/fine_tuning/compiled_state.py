"""Trainable flags and compiled functions of a model."""

import keras

from keras_attn._keras_internals import inner_layers

__all__ = ["make_all_trainable", "reset_compiled_functions"]


def make_all_trainable(model: keras.Model) -> None:
    """Make trainable all weights of a model that were created as trainable."""
    for value in (True, False, True):
        # On TensorFlow, Keras ignores an assignment that does not change the flag of a
        # layer and does not pass it on to inner layers. Toggling changes every flag.
        model.trainable = value


def reset_compiled_functions(model: keras.Model) -> None:
    """Discard the compiled functions of `fit`, `evaluate` and `predict`.

    The next call traces them again, with the current variables.
    """
    for _, layer in [("", model), *inner_layers(model)]:
        if isinstance(layer, keras.Model):
            layer.train_function = layer.test_function = layer.predict_function = None
