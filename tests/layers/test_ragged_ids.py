"""Ragged ids of TensorFlow, which tokenizers return, given to a model."""

import keras
import numpy as np
import pytest

from keras_attn import models, training

SMALL = dict(num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2)
RAGGED = r"Token ids of layer '\w+' must be a dense tensor; `ids.to_tensor\(\)`.*ragged"


@pytest.fixture
def ragged():
    import tensorflow as tf

    return tf.ragged.constant([[4, 5, 6], [3]], dtype="int32")


@pytest.mark.parametrize("method", ["fit", "predict", "evaluate", "call"])
def test_ragged_ids_raise(ragged, method):
    model = models.text_classifier(11, 3, **SMALL)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = [np.array([0, 1])] if method in ("fit", "evaluate") else []
    function = model if method == "call" else getattr(model, method)
    options = {} if method == "call" else {"verbose": 0}
    with pytest.raises(ValueError, match=RAGGED):
        function(ragged, *labels, **options)


@pytest.mark.parametrize("name", ["transformer_translator", "causal_language_model"])
def test_ragged_ids_of_other_models_raise(ragged, name):
    model = getattr(models, name)(11, **SMALL)
    model.compile("sgd", training.MaskedCrossentropy())
    is_translator = name == "transformer_translator"
    ids = {"source": ragged, "target": ragged} if is_translator else ragged
    with pytest.raises(ValueError, match=RAGGED):
        model.predict(ids, verbose=0)
    with pytest.raises(ValueError, match=RAGGED):
        model.fit(ids, ragged, verbose=0)
