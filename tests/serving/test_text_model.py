"""Encoders and classifiers of texts: batches without texts."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn import layers
from keras_attn.layers.embedding.pooling import TokenPooling
from keras_attn.models import text_classifier
from keras_attn.serving import TextModel, export_text_model

LABELS = ["negative", "positive"]


def classifier(tokenizer):
    return text_classifier(
        tokenizer.vocabulary_size,
        2,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=12,
        num_heads=2,
    )


def encoder(tokenizer, pool, length=None):
    ids = keras.Input((length,), dtype="int32")
    x = layers.TokenEmbedding(tokenizer.vocabulary_size, 8, padding_id=None)(ids)
    return keras.Model(ids, pool(layers.TransformerEncoder(12, 2)(x), ids))


def token_pooling(pooling):
    return lambda x, ids: TokenPooling(pooling)(x, keras.ops.not_equal(ids, 0))


POOLINGS = {
    "states": (lambda x, ids: x, None),
    "first": (token_pooling("first"), None),
    "mean": (token_pooling("mean"), None),
    "max": (token_pooling("max"), None),
    "fixed length": (lambda x, ids: keras.layers.Flatten()(x), 7),
    "recurrent": (lambda x, ids: keras.layers.LSTM(5)(x), None),
    "convolution": (
        lambda x, ids: keras.layers.GlobalMaxPooling1D()(keras.layers.Conv1D(5, 3)(x)),
        None,
    ),
}


@pytest.mark.parametrize("kind", ["source", "word", "character", "word piece"])
def test_no_texts(tokenizers, kind):
    model = TextModel(classifier(tokenizers[kind]), tokenizers[kind], labels=LABELS)
    outputs = {name: output.numpy() for name, output in model([]).items()}
    assert {name: output.shape for name, output in outputs.items()} == {
        "output": (0, 2),
        "probabilities": (0, 2),
        "label": (0,),
    }


@pytest.mark.parametrize("kind", POOLINGS)
def test_no_texts_of_other_models(tokenizers, kind):
    keras_model = encoder(tokenizers["word"], *POOLINGS[kind])
    model = TextModel(keras_model, tokenizers["word"])
    expected = model(["나는 학교에 간다."])["output"].shape
    shape = model([])["output"].shape
    assert shape[0] == 0 and len(shape) == len(expected)
    assert shape[-1] == expected[-1]


def test_texts_are_not_padded_further(tokenizers):
    """Compare with the model on ids without padding."""
    tokenizer = tokenizers["word"]
    model = classifier(tokenizer)
    ids = tokenizer.tokenize(["나는 학교에"], True, True)
    outputs = TextModel(model, tokenizer)(["나는 학교에"])["output"]
    expected = model(ids.to_tensor(), training=False)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.export
def test_no_texts_for_an_exported_model(tokenizers, tmp_path):
    tokenizer = tokenizers["word"]
    model = classifier(tokenizer)
    path = export_text_model(model, tmp_path / "model", tokenizer, labels=LABELS)
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    shapes = {
        name: tuple(output.shape)
        for name, output in serve(text=tf.constant([], tf.string)).items()
    }
    assert shapes == {"output": (0, 2), "probabilities": (0, 2), "label": (0,)}
    texts = ["나는 학교에 간다.", "고양이가"]
    expected = TextModel(model, tokenizer, labels=LABELS)(texts)["output"]
    output = serve(text=tf.constant(texts))["output"]
    np.testing.assert_allclose(output, expected, atol=1e-6)
