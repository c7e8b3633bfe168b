"""Layers one token at a time, with a cache, against themselves all at once."""

import keras
import numpy as np
import pytest
from backend_marks import on_every_backend
from tensors import (
    array,
    assert_close,
    assert_equal,
    fill_weights,
    lengths_mask,
    normal,
)

from keras_attn import decoding, layers
from keras_attn.decoding.compile import compile_function

BATCH, LENGTH, TOTAL, WIDTH, HEADS, ROOM = 2, 5, 3, 6, 2, 8
X, CONTEXT = normal(BATCH, LENGTH, WIDTH), normal(BATCH, TOTAL, WIDTH, seed=1)
KEEP, CONTEXT_KEEP = lengths_mask([5, 3], LENGTH), lengths_mask([3, 2], TOTAL)


def empty(layer):
    return {
        name: keras.ops.zeros(leaf.shape, dtype=leaf.dtype)
        for name, leaf in layer.cache_spec(BATCH, ROOM, ()).items()
    }


def in_steps(layer, sizes, padding_name=None, **context):
    """Outputs of `cached_call`s over the next `sizes` tokens each, joined."""
    cache, index, outputs = empty(layer), 0, []
    for size in sizes:
        is_decoder = isinstance(layer, layers.TransformerDecoder)
        x = keras.ops.convert_to_tensor(X[:, index : index + size])
        inputs = {"decoder_sequence" if is_decoder else "inputs": x, **context}
        if padding_name:
            inputs[padding_name] = KEEP[:, index : index + size]
        if not is_decoder:
            inputs["use_causal_mask"] = True
        position = keras.ops.convert_to_tensor(index, dtype="int32")
        output, cache = layer.cached_call(inputs, cache, position)
        outputs.append(array(output))
        index += size
    return np.concatenate(outputs, axis=1), cache


@pytest.mark.parametrize("kernel", ["full", "fused"])
@pytest.mark.parametrize("sizes", [[1] * LENGTH, [2, 1, 2], [LENGTH]])
def test_self_attention(sizes, kernel):
    layer = layers.MultiHeadSelfAttention(
        HEADS, value_dim=5, dropout=0.5, attention_kernel=kernel
    )
    layer.build(X.shape)
    fill_weights(layer)
    found, cache = in_steps(layer, sizes, "padding_mask")
    expected = layer(X, padding_mask=KEEP, use_causal_mask=True)
    assert_close(found, expected)
    assert_equal(array(cache["padding_mask"])[:, :LENGTH], KEEP)
    assert_equal(array(cache["key"])[:, LENGTH:], 0.0)
    spec = layer.cache_spec(BATCH, ROOM, {"inputs"})
    assert {n: tuple(leaf.shape) for n, leaf in cache.items()} == {
        n: leaf.shape for n, leaf in spec.items()
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize_first": True},
        {
            "normalize_first": True,
            "residual": layers.Residual(sandwich_norm=True),
            "use_bias": False,
        },
        {"residual": layers.Residual(1.5, layer_scale=0.5, stochastic_depth=0.5)},
    ],
)
def test_decoder(options):
    layer = layers.TransformerDecoder(7, HEADS, **options)
    layer.build(X.shape, CONTEXT.shape)
    fill_weights(layer)
    context = layer.project_context(
        {
            "encoder_sequence": keras.ops.convert_to_tensor(CONTEXT),
            "encoder_padding_mask": CONTEXT_KEEP,
        }
    )
    found, _ = in_steps(
        layer, [2, 1, 1, 1], "decoder_padding_mask", projected_context=context
    )
    expected = layer(
        X, CONTEXT, decoder_padding_mask=KEEP, encoder_padding_mask=CONTEXT_KEEP
    )
    assert_close(found, expected)


def test_parallel_decoder():
    layer = layers.TransformerDecoder(7, HEADS, normalize_first=True, parallel=True)
    layer.build(X.shape)
    fill_weights(layer)
    found, _ = in_steps(layer, [2, 1, 1, 1], "decoder_padding_mask")
    assert_close(found, layer(X, decoder_padding_mask=KEEP))


@pytest.mark.parametrize("length", on_every_backend([1, 2], (2,)))
def test_several_queries_share_a_context(length):
    """As the hypotheses of a row do."""
    layer = layers.CrossAttention(HEADS, value_dim=5)
    layer.build(X.shape, CONTEXT.shape)
    fill_weights(layer)
    context = layer.project_context(
        {
            "context": keras.ops.convert_to_tensor(CONTEXT),
            "padding_mask": CONTEXT_KEEP,
        }
    )
    query = normal(3 * BATCH, length, WIDTH, seed=2)
    inputs = {
        "query": keras.ops.convert_to_tensor(query),
        "projected_context": context,
    }
    found, _ = layer.cached_call(inputs, {}, 0)
    repeated = (np.repeat(x, 3, axis=0) for x in (CONTEXT, CONTEXT_KEEP))
    expected = layer(query, next(repeated), padding_mask=next(repeated))
    assert_close(found, expected)


def test_a_later_token_does_not_change_an_earlier_step():
    layer = layers.TransformerDecoder(7, HEADS)
    layer.build(X.shape)
    fill_weights(layer)
    first, cache = in_steps(layer, [3])
    stale = {name: array(leaf).copy() for name, leaf in cache.items()}
    # What stands beyond the index must not be looked at.
    stale["key"][:, 3:] = 1e3
    stale["value"][:, 3:] = 1e3
    stale["padding_mask"][:, 3:] = True
    inputs = {"decoder_sequence": keras.ops.convert_to_tensor(X[:, 3:4])}
    index = keras.ops.convert_to_tensor(3, dtype="int32")
    clean, _ = layer.cached_call(inputs, cache, index)
    stale = {name: keras.ops.convert_to_tensor(leaf) for name, leaf in stale.items()}
    dirty, _ = layer.cached_call(inputs, stale, index)
    assert_equal(clean, dirty)
    assert_close(np.concatenate([first, array(clean)], 1), array(layer(X))[:, :4])


def test_steps_over_the_future_are_refused():
    layer = layers.MultiHeadSelfAttention(HEADS, name="looks_ahead")
    layer.build(X.shape)
    index = keras.ops.convert_to_tensor(0, dtype="int32")
    with pytest.raises(ValueError, match="'looks_ahead' attends to tokens that"):
        layer.cached_call({"inputs": X[:, :1]}, empty(layer), index)
    with pytest.raises(ValueError, match="'looks_ahead'.*explicit `attention_mask`"):
        inputs = {
            "inputs": X[:, :1],
            "attention_mask": np.ones((BATCH, 1, 1), bool),
            "use_causal_mask": True,
        }
        layer.cached_call(inputs, empty(layer), index)


@pytest.mark.every_backend
def test_a_step_model_of_a_translator():
    """Embedding, positions, masks, both blocks and the way back, and then training."""
    ids = {
        "source": keras.Input((None,), dtype="int32", name="source"),
        "target": keras.Input((None,), dtype="int32", name="target"),
    }
    embedding = layers.TokenEmbedding(11, WIDTH, scale=True, name="embedding")
    positions = layers.SinusoidalPositionEmbedding(name="positions")
    learned = layers.PositionEmbedding(ROOM, name="learned")
    encoded = layers.TransformerEncoder(7, HEADS)(positions(embedding(ids["source"])))
    x = learned(positions(embedding(ids["target"])))
    x = layers.TransformerDecoder(7, HEADS, normalize_first=True)(x, encoded)
    model = keras.Model(ids, embedding(x, reverse=True))
    fill_weights(model)
    source = np.array([[3, 4, 5], [6, 7, 0]], "int32")
    target = np.array([[1, 8, 9, 2, 10], [1, 3, 4, 0, 0]], "int32")
    step = decoding.step_model(model, ROOM)
    # Compiled, as `generate` does: weights changed later must be used all the same.
    run, encode, full = (
        compile_function(function, model.variables)
        for function in (step.step, step.encode, lambda inputs: model(inputs))
    )
    inputs = {
        "source": keras.ops.convert_to_tensor(source),
        "target": keras.ops.convert_to_tensor(target),
    }

    def steps():
        frontier, cache = encode(inputs), step.empty_cache(BATCH)
        logits = []
        for i in range(LENGTH):
            index = keras.ops.convert_to_tensor(i, dtype="int32")
            tokens = keras.ops.convert_to_tensor(target[:, i : i + 1])
            new, cache = run(tokens, index, frontier, cache)
            logits.append(array(new))
        return np.concatenate(logits, axis=1)

    expected = array(full(inputs))
    keep = target != 0
    assert_close(steps()[keep], expected[keep])
    fill_weights(model, seed=3)
    changed = array(full(inputs))
    assert np.abs(changed - expected).max() > 0.1
    assert_close(steps()[keep], changed[keep])


@pytest.mark.parametrize("kernel", ["blockwise", "fused"])
def test_a_ring_whatever_the_kernel(kernel):
    layer = layers.MultiHeadSelfAttention(
        HEADS, sliding_window=2, attention_kernel=kernel
    )
    layer.build(X.shape)
    fill_weights(layer)
    found, cache = in_steps(layer, [2, 1, 2], "padding_mask")
    expected = layer(X, padding_mask=KEEP, use_causal_mask=True)
    assert_close(found, expected)
    assert cache["padding_mask"].shape[1] == 2
