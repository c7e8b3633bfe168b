"""Models with fewer heads, compared with heads whose output is set to zero."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, fill_weights

from keras_attn import layers
from keras_attn.decoding import generate
from keras_attn.inspection import attention_maps, head_importance, prune_heads
from keras_attn.models import transformer_translator
from keras_attn.training import MaskedCrossentropy

HEADS = {
    "encoder_0": [1],
    "decoder_0/self_attention": [0],
    "decoder_0/cross_attention": [1],
}


def translator(**options: Any) -> keras.Model:
    return fill_weights(
        transformer_translator(
            11,
            num_layers=1,
            hidden_dim=8,
            intermediate_dim=6,
            num_heads=2,
            **options,
        )
    )


def ids(*lengths: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(1, 11, (2, length)).astype("int32") for length in lengths]
    for x in arrays:
        x[1, 2:] = 0
    return arrays


def batch() -> dict[str, np.ndarray]:
    return dict(zip(("source", "target"), ids(5, 4)))


def zero_heads(attention: Any, heads: Iterable[int]) -> None:
    """Set the output of some heads to zero, as if they were pruned."""
    kernel = attention.weights[-2 if attention.use_bias else -1]
    values = array(kernel).copy()
    values[list(heads)] = 0
    kernel.assign(values)


def zero_translator_heads(
    model: keras.Model, names: Iterable[str] = HEADS
) -> keras.Model:
    for name in names:
        block = model.get_layer(name.split("/")[0])
        part = "_cross_attention" if "cross" in name else "_self_attention"
        zero_heads(getattr(block, part), HEADS[name])
    return model


def snapshot(model: keras.Model) -> list[np.ndarray]:
    return [array(variable).copy() for variable in model.variables]


@pytest.mark.parametrize(
    ("names", "normalize_first"),
    [
        pytest.param([name], False, marks=mark, id=key)
        for key, name, mark in zip(
            ("encoder", "self", "cross"),
            HEADS,
            (pytest.mark.every_backend, *[pytest.mark.on_pytorch] * 2),
            strict=True,
        )
    ]
    + [
        pytest.param(list(HEADS), True, marks=pytest.mark.on_pytorch, id="all"),
        pytest.param(
            list(HEADS)[1:], False, marks=pytest.mark.on_pytorch, id="decoder"
        ),
    ],
)
def test_outputs_equal_heads_with_zero_output(
    names: list[str], normalize_first: bool
) -> None:
    model = translator(normalize_first=normalize_first)
    smaller = prune_heads(model, {name: HEADS[name] for name in names})
    expected = zero_translator_heads(model, names)(batch())
    assert_close(smaller(batch()), expected)
    # Head size 4: three input kernels and biases, and an output kernel.
    per_head = 3 * (8 * 4 + 4) + 4 * 8
    assert model.count_params() - smaller.count_params() == len(names) * per_head


def test_the_model_is_not_changed_and_shares_no_weights() -> None:
    model = translator()
    before, output = snapshot(model), array(model(batch()))
    smaller = prune_heads(model, HEADS)
    for variable, values in zip(model.variables, before):
        assert_equal(variable, values)
    assert not {*map(id, model.variables)} & {*map(id, smaller.variables)}
    for variable in smaller.trainable_variables:
        variable.assign(variable * 0)
    assert_equal(model(batch()), output)
    assert model.get_layer("encoder_0").attention is None
    model.compile("sgd", MaskedCrossentropy())  # the copy is not compiled
    assert not prune_heads(model, HEADS).compiled


def test_inputs_and_outputs_keep_names_and_structure() -> None:
    a, b = keras.Input((None,), dtype="int32", name="a"), keras.Input((3,), name="b")
    embedded = keras.layers.Embedding(11, 8, mask_zero=True)(a)
    x = layers.MultiHeadSelfAttention(2, name="own")(embedded)
    x = keras.layers.LSTM(3)(x) + b  # a layer that gets the mask, and an op
    outputs = {"sum": x, "both": [keras.layers.Dense(2, name="dense")(x), x]}
    model = fill_weights(keras.Model({"b": b, "a": a}, outputs, name="mine"))
    smaller = prune_heads(model, {"own": [0]})
    assert smaller.name == "mine"
    assert smaller.output_names == model.output_names
    zero_heads(model.get_layer("own"), [0])
    data = {"a": ids(5)[0], "b": np.ones((2, 3), "float32")}
    expected, outputs = model(data), smaller(data)
    keras.tree.assert_same_structure(expected, outputs)
    keras.tree.map_structure(assert_close, outputs, expected)
    for x, y in zip(model.inputs, smaller.inputs, strict=True):
        assert (x.name, x.shape, x.dtype) == (y.name, y.shape, y.dtype)


@pytest.mark.slow
def test_pruned_model_saves_maps_and_generates(tmp_path: Path) -> None:
    model = translator()
    smaller = prune_heads(model, HEADS)
    smaller.save(tmp_path / "smaller.keras")
    loaded = keras.saving.load_model(tmp_path / "smaller.keras")
    zero_translator_heads(model)
    data = batch()
    assert_equal(loaded(data), smaller(data))
    maps, full_maps = attention_maps(loaded, data), attention_maps(model, data)
    for name, (pruned,) in HEADS.items():
        assert maps[name].shape[1] == 1
        assert_close(maps[name], full_maps[name][:, [1 - pruned]])
    options = {"start_token_id": 1, "end_token_id": 2, "max_new_tokens": 6}
    output = generate(loaded, {"source": data["source"]}, **options)
    tokens = array(output["token_ids"])[:, 0]
    target = np.concatenate([np.ones((2, 1), "int32"), tokens[:, :-1]], axis=1)
    logits = model({"source": data["source"], "target": target})
    for i, length in enumerate(array(output["lengths"])[:, 0]):
        assert length > 1
        assert_equal(tokens[i, :length], array(logits)[i, :length].argmax(-1))
    importance = head_importance(loaded, [(data, data["target"])], MaskedCrossentropy())
    assert {name: values.shape for name, values in importance.items()} == dict.fromkeys(
        HEADS, (1,)
    )
    with pytest.raises(ValueError, match="At least one of the 1 heads.*must remain"):
        prune_heads(loaded, {"encoder_0": [0]})


def test_a_pruned_model_can_be_pruned_again_and_trained() -> None:
    model = fill_weights(
        transformer_translator(
            11, num_layers=1, hidden_dim=9, intermediate_dim=6, num_heads=3
        )
    )
    once = prune_heads(model, {"encoder_0": [0, 1]})
    twice = prune_heads(prune_heads(model, {"encoder_0": [0]}), {"encoder_0": [0]})
    assert_equal(once(batch()), twice(batch()))
    once.compile("sgd", MaskedCrossentropy(), run_eagerly=True)
    history = once.fit(batch(), batch()["target"], verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("heads", [[0, 2], (2, 0, 2), np.array([0, 2]), {0, 2}])
def test_a_layer_with_different_key_value_and_output_sizes(
    use_bias: bool, heads: Any
) -> None:
    query, value, key = (keras.Input((n, d)) for n, d in ((3, 7), (5, 4), (5, 2)))
    attention = layers.MultiHeadAttention(
        3, key_dim=2, value_dim=5, output_shape=6, use_bias=use_bias, name="plain"
    )
    inputs = [query, value, key]
    model = fill_weights(keras.Model(inputs, attention(query, value, key)))
    smaller = prune_heads(model, {"plain": heads})
    zero_heads(attention, [0, 2])
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(2, *x.shape[1:])).astype("float32") for x in inputs]
    assert_close(smaller(data), model(data))
    pruned = smaller.get_layer("plain")
    assert (pruned.num_heads, pruned.key_dim, pruned.value_dim) == (1, 2, 5)


def test_a_layer_called_twice() -> None:
    tokens = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(11, 8, mask_zero=True)(tokens)
    attention = layers.MultiHeadSelfAttention(4, name="shared")
    x = attention(keras.layers.Add()([x, attention(x)]))
    model = fill_weights(keras.Model(tokens, x))
    # Heads can be pruned under either name of the layer.
    smaller = prune_heads(model, {"shared": [0], "shared_1": [2]})
    zero_heads(attention, [0, 2])
    assert_close(smaller(ids(5)[0]), model(ids(5)[0]))
    per_head = 3 * (8 * 2 + 2) + 2 * 8
    assert model.count_params() - smaller.count_params() == 2 * per_head
    with pytest.raises(ValueError, match="At least one of the 4 heads of 'shared_1'"):
        prune_heads(model, {"shared": [0, 1], "shared_1": [2, 3]})


def stack_on_one_attention() -> tuple[keras.Model, keras.layers.Layer]:
    tokens = keras.Input((None,), dtype="int32")
    attention = layers.MultiHeadSelfAttention(2)
    x = keras.layers.Embedding(11, 8)(tokens)
    for name in ("a", "b"):
        x = layers.TransformerEncoder(6, 2, attention=attention, name=name)(x)
    return fill_weights(keras.Model(tokens, x)), attention


@pytest.mark.parametrize("heads", [{}, {"a": [0]}, {"a": [0], "b": [0]}])
def test_attention_shared_by_two_blocks(heads: dict[str, list[int]]) -> None:
    model, attention = stack_on_one_attention()
    smaller = prune_heads(model, heads)
    if heads:
        zero_heads(attention, [0])
    assert_close(smaller(ids(5)[0]), model(ids(5)[0]))
    assert smaller.get_layer("a").attention is smaller.get_layer("b").attention
    per_head = 3 * (8 * 4 + 4) + 4 * 8
    fewer = model.count_params() - smaller.count_params()
    assert fewer == (per_head if heads else 0)


def test_attention_passed_to_a_block() -> None:
    tokens, context = keras.Input((None,), dtype="int32"), keras.Input((3, 4))
    x = keras.layers.Embedding(11, 8)(tokens)
    block = layers.TransformerDecoder(
        6,
        2,
        attention=layers.MultiHeadSelfAttention(2),
        feed_forward=keras.layers.Dense(8),
        cross_attention=layers.CrossAttention(3, key_dim=2),
        name="block",
    )
    model = fill_weights(keras.Model([tokens, context], block(x, context)))
    smaller = prune_heads(model, {"block/cross_attention": [1]})
    zero_heads(block.cross_attention, [1])
    data = [ids(5)[0], np.random.default_rng(0).normal(size=(2, 3, 4))]
    assert_close(smaller(data), model(data))


# Keras warns if a nested model is called on tensors with a mask.
@pytest.mark.filterwarnings("ignore:Layer 'head' .*was passed an input with a mask")
def test_nested_models() -> None:
    inner = translator()
    head = keras.Sequential([keras.layers.Dense(5), keras.layers.Dense(3)], name="head")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in batch()}
    twice = [head(inner(inputs)), head(inner(dict(inputs, target=inputs["source"])))]
    model = fill_weights(keras.Model(inputs, twice))
    names = attention_maps(model, batch()).keys()
    assert HEADS.keys() < names
    smaller = prune_heads(model, HEADS)
    zero_translator_heads(inner)
    for output, expected in zip(smaller(batch()), model(batch()), strict=True):
        assert_close(output, expected)
    per_head = 3 * (8 * 4 + 4) + 4 * 8
    assert model.count_params() - smaller.count_params() == 3 * per_head


def test_a_sequential_model() -> None:
    model = keras.Sequential(
        [
            keras.layers.Embedding(11, 8, mask_zero=True),
            layers.TransformerEncoder(6, 2, name="encoder"),
            keras.layers.Dense(3),
        ]
    )
    model.build((None, 5))
    fill_weights(model)
    smaller = prune_heads(model, {"encoder": [1]})
    zero_heads(model.get_layer("encoder")._self_attention, [1])
    assert_close(smaller(ids(5)[0]), model(ids(5)[0]))


@pytest.mark.parametrize("input_feeding", [True, False])
def test_attention_of_a_recurrent_decoder(input_feeding: bool, tmp_path: Path) -> None:
    source, target = keras.Input((5, 4)), keras.Input((3, 4))
    attention = layers.MultiHeadAttention(2)
    decoder = layers.RecurrentDecoder(
        6, attention=attention, input_feeding=input_feeding, name="decoder"
    )
    model = fill_weights(keras.Model([source, target], decoder(target, source)))
    smaller = prune_heads(model, {"decoder": [0]})
    zero_heads(attention, [0])
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(2, n, 4)).astype("float32") for n in (5, 3)]
    assert_close(smaller(data), model(data))
    smaller.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_equal(loaded(data), smaller(data))


def test_an_empty_dict_copies_the_model() -> None:
    model = translator()
    copy = prune_heads(model, {})
    assert copy is not model
    for x, y in zip(model.weights, copy.weights, strict=True):
        assert x is not y
        assert_equal(x, y)
    assert_equal(copy(batch()), model(batch()))
    x = keras.Input((3,))
    plain = fill_weights(keras.Model(x, keras.layers.Dense(2)(x)))
    assert_equal(prune_heads(plain, {})(np.ones((1, 3))), plain(np.ones((1, 3))))


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({"encoder_1": [0]}, "which are .*'encoder_0'.*Received: name='encoder_1'"),
        ({"decoder_0": [0]}, "'decoder_0/cross_attention'.*Received: name='decoder_0'"),
        ({"source_dropout": [0]}, "Received: name='source_dropout'"),
        ({"encoder_0": [2]}, r"ints from 0 to 1\. Received: heads=\[2\]"),
        ({"encoder_0": [-1]}, r"ints from 0 to 1\. Received: heads=\[-1\]"),
        ({"encoder_0": [0.5]}, "ints from 0 to 1.*Received"),
        ({"encoder_0": 1}, "list of ints.*Received: heads=1"),
        ({"encoder_0": "0"}, "list of ints.*Received: heads='0'"),
        ({"encoder_0": [1, 0]}, r"At least one.*'encoder_0' must remain.*\[1, 0\]"),
    ],
)
def test_invalid_heads_raise(heads: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prune_heads(translator(), heads)


def test_invalid_models_raise() -> None:
    class Subclassed(keras.Model):
        def call(self, inputs: Any) -> Any:
            return inputs

    with pytest.raises(ValueError, match="Functional.*Received: model="):
        prune_heads(Subclassed(), {})
    x = keras.Input((3, 4))
    model = keras.Model(x, keras.layers.MultiHeadAttention(2, 2, name="stock")(x, x))
    with pytest.raises(ValueError, match="multi-head.*keras_attn.*Received.*'stock'"):
        prune_heads(model, {"stock": [0]})


def test_rotary_normalized_gated_heads_with_sinks() -> None:
    inputs = keras.Input((5, 12))
    attention = layers.MultiHeadSelfAttention(
        3,
        position=layers.RotaryPositionEmbedding(),
        qk_norm="rms_norm",
        use_sinks=True,
        use_gate=True,
        sliding_window=3,
        name="modern",
    )
    model = fill_weights(keras.Model(inputs, attention(inputs)))
    smaller = prune_heads(model, {"modern": [0, 2]})
    kernel = attention._projections.output.kernel
    kernel.assign(array(kernel) * np.array([0, 1, 0]).reshape(3, 1, 1))
    data = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
    assert_close(smaller(data), model(data))


@pytest.mark.parametrize(
    "options",
    [dict(num_key_value_heads=1), dict(position=layers.AlibiPositionBias())],
    ids=["grouped", "biased"],
)
def test_dependent_heads_raise(options: Any) -> None:
    inputs = keras.Input((5, 12))
    attention = layers.MultiHeadSelfAttention(3, name="heads", **options)
    model = keras.Model(inputs, attention(inputs))
    with pytest.raises(
        ValueError, match="'heads' cannot be pruned.*Received: num_key_value_heads"
    ):
        prune_heads(model, {"heads": [0]})
