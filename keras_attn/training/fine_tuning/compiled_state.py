"""What trains in a model, and the functions that Keras has compiled for it."""

import keras

from keras_attn._keras_internals import inner_layers

__all__ = ["forget_functions", "make_all_trainable"]


def make_all_trainable(model):
    """All weights that were made to be trained, whatever was frozen since."""
    for value in (True, False, True):
        # On TensorFlow Keras ignores what a layer's flag is already, and passes it on
        # to no layer in it: so each flag is made to change.
        model.trainable = value


def forget_functions(model):
    """Has `fit`, `evaluate` and `predict` traced anew, with the variables of now."""
    for _, part in [("", model), *inner_layers(model)]:
        if isinstance(part, keras.Model):
            part.train_function = part.test_function = part.predict_function = None
