"""`class_weight` of Keras's training loops, for labels of tokens and of texts."""

from typing import Any

import keras
import numpy as np
import pytest

from keras_attn import layers, models
from keras_attn.training import MaskedAccuracy, MaskedCrossentropy

V = 11
IDS = np.random.default_rng(0).integers(1, V, (8, 5)).astype("int32")
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, V).astype("float32")
CLASS_WEIGHT = dict(enumerate(WEIGHTS.tolist()))
REFUSED = r"`class_weight` is not supported for targets \(B, T\).*weights\[targets\]"


def compiled(loss: Any = None, **options: Any) -> keras.Model:
    """Return a model stacked by hand."""
    inputs: Any = keras.Input((None,), dtype="int32")
    embedding = layers.TokenEmbedding(V, 8)
    logits = embedding(
        layers.TransformerEncoder(12, 2)(embedding(inputs)), reverse=True
    )
    model = keras.Model(inputs, logits)
    model.compile(keras.optimizers.SGD(0.0), loss or MaskedCrossentropy(), **options)
    return model


@pytest.mark.on_pytorch
def test_fit_with_token_labels_raises() -> None:
    model = compiled()
    with pytest.raises(ValueError, match=REFUSED):
        model.fit(IDS, IDS, class_weight=CLASS_WEIGHT, verbose=0)
    with pytest.raises(ValueError, match=REFUSED):
        compiled().train_on_batch(IDS, IDS, class_weight=CLASS_WEIGHT)


def test_other_ways_to_train_raise() -> None:
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensor_slices((IDS, IDS)).batch(4)
    with pytest.raises(ValueError, match=REFUSED):
        compiled().fit(batches, class_weight=CLASS_WEIGHT, shuffle=False, verbose=0)
    with pytest.raises(ValueError, match=REFUSED):
        compiled(run_eagerly=True).fit(IDS, IDS, class_weight=CLASS_WEIGHT, verbose=0)
    model = compiled(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[MaskedAccuracy()],
    )
    with pytest.raises(ValueError, match=REFUSED):
        model.fit(IDS, IDS, class_weight=CLASS_WEIGHT, verbose=0)


@pytest.mark.on_pytorch
def test_weights_of_tokens_and_of_batch_elements() -> None:
    """The loss with `sample_weight` of both shapes, compared with NumPy."""
    model = compiled()
    logits = np.asarray(model.predict(IDS, verbose=0), "float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_probs, IDS[..., None], -1)[..., 0]
    for weights in (WEIGHTS[IDS], WEIGHTS[:8]):
        expected = (losses * weights.reshape(8, -1)).mean()
        model.compile(model.optimizer, model.loss)  # a new function, of new ranks
        history = model.fit(
            IDS, IDS, sample_weight=weights, batch_size=8, verbose=0
        ).history
        assert history["loss"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.on_pytorch
def test_class_weight_and_weights_of_validation_data() -> None:
    """Labels (B,) take `class_weight`; validation data has its own weights."""
    model = models.text_classifier(
        V, 3, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, dropout=0.0
    )
    labels = (IDS[:, 0] % 3).astype("int32")
    model.compile(keras.optimizers.SGD(0.0), MaskedCrossentropy(padding_id=-1))
    class_weight = {0: 0.5, 1: 1.0, 2: 2.0}
    by_class = model.fit(IDS, labels, class_weight=class_weight, verbose=0).history
    weights = np.array([class_weight[label] for label in labels])
    by_sample = model.fit(IDS, labels, sample_weight=weights, verbose=0).history
    assert by_class["loss"] == pytest.approx(by_sample["loss"], rel=1e-5)
    column = labels[:, None]
    model = compiled()
    history = model.fit(
        IDS[:, :1],
        column,
        class_weight=class_weight,
        validation_data=(IDS, IDS, np.ones(8, "float32")),
        verbose=0,
    ).history
    assert np.isfinite(history["val_loss"]).all()


def test_ragged_targets_raise() -> None:
    import tensorflow as tf

    ragged = tf.ragged.constant([[1, 2, 3], [4]], dtype="int32")
    logits = np.zeros((2, 3, V), "float32")
    for call in (MaskedCrossentropy(), MaskedAccuracy().update_state):
        with pytest.raises(ValueError, match=r"to_tensor\(\).*ragged"):
            call(ragged, logits)
