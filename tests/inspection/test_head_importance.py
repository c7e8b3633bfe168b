"""Importance of heads, compared with finite differences in their output kernels."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import pytest
from tensors import array, fill_weights

from keras_attn import layers
from keras_attn.inspection import attention_maps, head_importance
from keras_attn.models import transformer_translator
from keras_attn.training import MaskedCrossentropy

EPSILON = 2e-2


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return translator()


def translator() -> keras.Model:
    """Build a model with smooth activations, as finite differences require."""
    return fill_weights(
        transformer_translator(
            11,
            7,
            num_layers=1,
            hidden_dim=8,
            intermediate_dim=6,
            num_heads=2,
            activation="gelu",
        ),
        seed=1,
    )


def examples(
    batch_size: int = 3, seed: int = 0
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    source, target, labels = (rng.integers(1, 7, (batch_size, n)) for n in (5, 4, 4))
    source[0, 3:] = 0
    target[-1, 2:] = labels[-1, 2:] = 0
    ids = {"source": source.astype("int32"), "target": target.astype("int32")}
    return ids, labels.astype("int32")


def batches(data: Any, sizes: Sequence[int]) -> Iterator[Any]:
    """Yield the examples in batches of the given sizes."""
    for start, end in itertools.pairwise(np.cumsum([0, *sizes])):
        yield keras.tree.map_structure(lambda x, s=slice(start, end): x[s], data)


def mean_crossentropy(labels: np.ndarray, logits: Any) -> np.ndarray:
    """Compute the mean loss of each example over its real tokens."""
    logits = array(logits).astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
    return (losses * (labels != 0)).sum(1) / (labels != 0).sum(1)


def by_differences(
    model: keras.Model, attention: Any, losses: Callable[[keras.Model], np.ndarray]
) -> list[float]:
    """Compute the mean of |dL/dgate|, where the gate scales the output kernel."""
    kernel = attention.weights[-2 if attention.use_bias else -1]
    values, differences = array(kernel).copy(), []
    for head in range(attention.num_heads):
        sides = []
        for factor in (1 + EPSILON, 1 - EPSILON):
            scaled = values.copy()
            scaled[head] *= factor
            kernel.assign(scaled)
            sides.append(losses(model))
        differences.append(np.abs(sides[0] - sides[1]).mean() / (2 * EPSILON))
    kernel.assign(values)
    return differences


def assert_near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=2e-5)


@pytest.mark.on_pytorch
def test_importance_equals_finite_differences(model: keras.Model) -> None:
    data = examples()
    importance = head_importance(model, [data], MaskedCrossentropy())
    encoder, decoder = model.get_layer("encoder_0"), model.get_layer("decoder_0")
    attentions = {
        "encoder_0": encoder._self_attention,
        "decoder_0/self_attention": decoder._self_attention,
        "decoder_0/cross_attention": decoder._cross_attention,
    }
    assert list(importance) == list(attentions)
    for name, attention in attentions.items():
        assert isinstance(importance[name], np.ndarray) and importance[name].shape == (
            2,
        )
        assert_near(
            importance[name],
            by_differences(
                model, attention, lambda m: mean_crossentropy(data[1], m(data[0]))
            ),
        )
        assert importance[name].max() > 2e-3  # well above the tolerance


def test_names_equal_those_of_the_maps(model: keras.Model) -> None:
    data = examples()
    importance = head_importance(model, [data], MaskedCrossentropy())
    assert importance.keys() == attention_maps(model, data[0]).keys()


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (5,)])
def test_batches_make_no_difference(model: keras.Model, sizes: tuple[int, ...]) -> None:
    data = examples(batch_size=5)
    expected = head_importance(model, batches(data, [4, 1]), MaskedCrossentropy())
    importance = head_importance(model, batches(data, sizes), MaskedCrossentropy())
    for name, values in expected.items():
        np.testing.assert_allclose(importance[name], values, rtol=1e-4, atol=1e-7)


def test_a_tf_dataset(model: keras.Model) -> None:
    tf = pytest.importorskip("tensorflow")
    data = examples()
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(2)
    importance = head_importance(model, dataset, MaskedCrossentropy())
    expected = head_importance(model, [data], MaskedCrossentropy())
    for name, values in expected.items():
        np.testing.assert_allclose(importance[name], values, rtol=1e-4)


def test_importance_of_a_head_with_zero_output_is_zero() -> None:
    model = translator()
    cross = model.get_layer("decoder_0")._cross_attention
    kernel = array(cross.weights[-2]).copy()
    kernel[1] = 0
    cross.weights[-2].assign(kernel)
    importance = head_importance(model, [examples()], MaskedCrossentropy())
    assert importance["decoder_0/cross_attention"][1] == 0
    importance["decoder_0/cross_attention"] = importance["decoder_0/cross_attention"][
        :1
    ]
    assert all(values.min() > 0 for values in importance.values())


def test_sample_weights(model: keras.Model) -> None:
    ids, labels = examples(batch_size=2)
    first = keras.tree.map_structure(lambda x: x[:1], (ids, labels))
    weighted = (ids, labels, np.array([3.0, 0.0], "float32"))
    expected = head_importance(model, [first], MaskedCrossentropy())
    for name, importance in head_importance(
        model, [weighted], MaskedCrossentropy()
    ).items():
        np.testing.assert_allclose(importance, expected[name] * 3 / 2, rtol=1e-4)


def test_the_compiled_loss_is_the_default() -> None:
    model, data = translator(), examples()
    expected = head_importance(model, [data], MaskedCrossentropy())
    model.compile(loss=MaskedCrossentropy())
    variables = [array(variable) for variable in model.variables]
    for name, importance in head_importance(model, [data]).items():
        np.testing.assert_array_equal(importance, expected[name])
    for variable, values in zip(model.variables, variables):
        np.testing.assert_array_equal(array(variable), values)


def model_with_shared_attention(
    **options: Any,
) -> tuple[keras.Model, keras.layers.Layer]:
    """Build a model whose logits have a mask, with an attention layer called twice."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(7, 8, mask_zero=True)(ids)
    attention = layers.MultiHeadSelfAttention(2, name="shared", **options)
    x = attention(keras.layers.Add()([x, attention(x)]))
    return fill_weights(keras.Model(ids, keras.layers.Dense(7)(x))), attention


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("kind", ["object", "function"])
def test_keras_losses_use_the_mask(kind: str, use_bias: bool) -> None:
    model, attention = model_with_shared_attention(use_bias=use_bias)
    ids, labels = examples()
    ids = ids["target"]
    function = keras.losses.sparse_categorical_crossentropy
    loss = {
        "object": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "function": lambda y, p: function(y, p, from_logits=True),
    }[kind]
    importance = head_importance(model, [(ids, labels)], loss)
    assert list(importance) == ["shared"]
    assert_near(
        importance["shared"],
        by_differences(model, attention, lambda m: mean_crossentropy(labels, m(ids))),
    )


def test_loss_by_name() -> None:
    model, _ = model_with_shared_attention()
    ids, labels = examples()
    targets = np.random.default_rng(0).normal(size=(*labels.shape, 7))
    data = [(ids["target"], targets.astype("float32"))]
    importance = head_importance(model, data, "mse")["shared"]
    expected = head_importance(model, data, keras.losses.MeanSquaredError())["shared"]
    np.testing.assert_allclose(importance, expected, rtol=1e-5)


def test_several_outputs_and_a_function() -> None:
    ids = keras.Input((4,), dtype="int32")
    x = layers.MultiHeadSelfAttention(2, name="own")(keras.layers.Embedding(7, 8)(ids))
    outputs = {"a": keras.layers.Dense(1)(x), "b": keras.layers.Dense(2)(x)}
    model = fill_weights(keras.Model(ids, outputs))
    data = examples()[0]["target"], examples()[1]

    def loss(targets: Any, outputs: Any) -> Any:
        return keras.ops.mean(outputs["a"]) - keras.ops.mean(outputs["b"])

    def losses(model: keras.Model) -> np.ndarray:
        outputs = model(data[0])
        return array(outputs["a"]).mean((1, 2)) - array(outputs["b"]).mean((1, 2))

    importance = head_importance(model, [data], loss)
    assert_near(
        importance["own"], by_differences(model, model.get_layer("own"), losses)
    )


@pytest.mark.parametrize("input_feeding", [True, False])
def test_attention_of_a_recurrent_decoder(input_feeding: bool) -> None:
    source, target = keras.Input((5, 4)), keras.Input((3, 4))
    attention = layers.MultiHeadAttention(2)
    decoder = layers.RecurrentDecoder(
        6, attention=attention, input_feeding=input_feeding, name="decoder"
    )
    model = fill_weights(keras.Model([source, target], decoder(target, source)))
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(3, n, 4)).astype("float32") for n in (5, 3)]
    importance = head_importance(
        model, [(data, data[1])], lambda y, p: keras.ops.mean(p)
    )
    assert list(importance) == ["decoder"]
    assert_near(
        importance["decoder"],
        by_differences(model, attention, lambda m: array(m(data)).mean((1, 2))),
    )


def test_model_without_multi_head_attention_raises() -> None:
    x = keras.Input((3, 4))
    model = keras.Model(x, layers.DotProductAttention(name="single")(x, x))
    with pytest.raises(ValueError, match="multi-head.*Received.*'single'"):
        head_importance(model, [(np.ones((1, 3, 4)), np.ones((1, 3, 4)))], "mse")


@pytest.mark.parametrize("compiled", [None, {"a": "mse"}, ["mse", "mse"]])
def test_missing_loss_raises(compiled: Any) -> None:
    model = translator()
    if compiled is not None:
        model.compile(loss=compiled)
    with pytest.raises(ValueError, match="`loss` must be.*Received: loss="):
        head_importance(model, [examples()])


def test_data_without_examples_or_targets_raises(model: keras.Model) -> None:
    with pytest.raises(ValueError, match=r"at least one.*Received: dataset=\[\]"):
        head_importance(model, [], "mse")
    with pytest.raises(ValueError, match="inputs, targets.*Received: a batch of dict"):
        head_importance(model, [examples()[0]], "mse")
