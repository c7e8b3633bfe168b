"""`LinearSelfAttention`: masks, blocks, decoding with a state that does not grow."""

import keras
import numpy as np
import pytest
from backend_marks import on_every_backend
from keras import ops
from numpy_attention import attention
from tensors import (
    array,
    assert_close,
    assert_equal,
    fill_weights,
    gradients,
    lengths_mask,
    normal,
)

from keras_attn import layers
from keras_attn.decoding import BeamSearch, generate, step_model
from keras_attn.inspection import attention_maps, head_importance, prune_heads

BATCH, LENGTH, WIDTH, HEADS = 3, 7, 15, 3
VOCABULARY, START, END = 13, 2, 3


def linear(**kwargs):
    return layers.LinearSelfAttention(HEADS, **kwargs)


def encoder(**kwargs):
    return layers.TransformerEncoder(29, HEADS, attention=linear(), **kwargs)


def decoder(**kwargs):
    return layers.TransformerDecoder(29, HEADS, attention=linear(), **kwargs)


def built(layer):
    layer.build((BATCH, LENGTH, WIDTH))
    return fill_weights(layer)


def language_model(normalize_first=True):
    """Two decoder blocks, whose greedy texts differ from prompt to prompt."""
    tokens = keras.Input((None,), dtype="int32", name="target")
    x = keras.layers.Embedding(VOCABULARY, WIDTH, mask_zero=True)(tokens)
    x = layers.SinusoidalPositionEmbedding()(x)
    for _ in range(2):
        x = decoder(normalize_first=normalize_first)(x)
    model = keras.Model({"target": tokens}, keras.layers.Dense(VOCABULARY)(x))
    return fill_weights(model, seed=4)


@pytest.mark.parametrize("causal", on_every_backend([False, True], (True,)))
def test_it_is_softmax_attention_over_logarithms_of_features(causal):
    """A softmax of `log(phi(q) . phi(k))` gives the weights that the paper writes."""
    layer = built(linear(key_dim=4, value_dim=6, output_shape=11))
    x, keep = normal(BATCH, LENGTH, WIDTH), lengths_mask([7, 4, 1], LENGTH)
    kernels = [array(w).astype("float64") for w in layer.weights]
    query, key, value = (
        np.tensordot(x.astype("float64"), kernels[i], 1) + kernels[i + 1]
        for i in (0, 2, 4)
    )
    query, key = (
        np.where(z > 0, z + 1, np.exp(np.minimum(z, 0))) for z in (query, key)
    )
    bias = np.log(np.einsum("btnh,bsnh->bnts", query, key))
    allowed = keep[:, None, None] & np.tri(LENGTH, k=0 if causal else 99, dtype=bool)
    expected, weights = attention(query, key, value, allowed, bias, scale=0.0)
    expected = np.tensordot(expected, kernels[6], 2) + kernels[7]
    output, scores = layer(
        x, padding_mask=keep, use_causal_mask=causal, return_attention_scores=True
    )
    assert_close(output, expected)
    assert_close(scores, weights)
    assert_close(layer(x, padding_mask=keep, use_causal_mask=causal), expected)


def test_it_has_the_weights_of_softmax_attention():
    layer, other = built(linear(name="a")), layers.MultiHeadSelfAttention(3, name="a")
    other.build((BATCH, LENGTH, WIDTH))
    assert [(w.path, w.shape) for w in layer.weights] == [
        (w.path, w.shape) for w in other.weights
    ]


@pytest.mark.parametrize("make", [linear, encoder, decoder])
def test_padded_equals_cropped(make):
    layer = built(make())
    lengths = [7, 4, 1]
    name = "decoder_padding_mask" if make is decoder else "padding_mask"
    keep = lengths_mask(lengths, LENGTH)
    x = np.where(keep[..., None], normal(BATCH, LENGTH, WIDTH), 1e3).astype("float32")
    padded = array(layer(x, **{name: keep}))
    for row, length in enumerate(lengths):
        alone = layer(x[row : row + 1, :length])
        assert_close(padded[row : row + 1, :length], alone)


def test_implicit_and_explicit_masks():
    ids = np.where(lengths_mask([7, 4, 2], LENGTH), 5, 0)
    ids[:, 1] = 3
    x = keras.layers.Embedding(9, WIDTH, mask_zero=True)(ids)
    plain, other = ops.convert_to_tensor(array(x)), lengths_mask([2, 7, 5], LENGTH)
    layer = built(linear())
    assert_equal(layer(x), layer(plain, padding_mask=ids != 0))
    assert np.abs(array(layer(x)) - array(layer(plain))).max() > 1e-3
    assert_equal(layer(x, padding_mask=other), layer(plain, padding_mask=other))
    assert_equal(layer(plain, padding_mask=other.astype("int32")), layer(x, other))


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("make", [linear, decoder])
def test_the_future_does_not_reach_back(make, scores):
    layer = built(make())
    arguments = {"use_causal_mask": True, "return_attention_scores": scores}
    x = normal(BATCH, LENGTH, WIDTH)
    before = layer(x, **arguments)
    before = array(before[0] if scores else before)
    for position in range(1, LENGTH):
        changed = x.copy()
        changed[:, position] += 10
        after = layer(changed, **arguments)
        after = array(after[0] if scores else after)
        assert_equal(after[:, :position], before[:, :position])
        assert np.abs(after[:, position:] - before[:, position:]).max(-1).min() > 1e-3


def test_nothing_to_attend_to():
    layer = built(linear())
    x, keep = normal(BATCH, LENGTH, WIDTH), lengths_mask([7, 0, 3], LENGTH)
    output, scores = layer(x, padding_mask=keep, return_attention_scores=True)
    bias = array(layer._projections.output.bias)
    assert_equal(output[1], np.broadcast_to(bias, (LENGTH, WIDTH)))
    assert_equal(scores[1], 0.0)
    assert_close(array(scores)[[0, 2]].sum(-1), 1.0)
    [gradient] = gradients(lambda x: layer(x, padding_mask=keep) ** 2, x)
    assert np.isfinite(gradient).all()
    assert_equal(gradient[1], 0.0)


def test_half_precision():
    layer, half = built(linear()), built(linear(dtype="mixed_bfloat16"))
    x = normal(BATCH, LENGTH, WIDTH)
    expected = array(layer(x, use_causal_mask=True))
    found, scores = half(x, use_causal_mask=True, return_attention_scores=True)
    assert found.dtype == scores.dtype == ops.cast(x, "bfloat16").dtype
    error = np.abs(array(ops.cast(found, "float32")) - expected).max()
    assert error < 0.03 * np.abs(expected).max()
    assert {leaf.dtype for leaf in half.cache_spec(2, 5, ()).values()} == {"float32"}


def stepped(layer, x, keep, sizes):
    spec = layer.cache_spec(len(x), 99, ())
    cache = {name: ops.zeros(leaf.shape, leaf.dtype) for name, leaf in spec.items()}
    outputs, index = [], 0
    for size in sizes:
        span = slice(index, index + size)
        inputs = {
            "inputs": ops.convert_to_tensor(x[:, span]),
            "padding_mask": keep[:, span],
            "use_causal_mask": True,
        }
        position = ops.convert_to_tensor(index, dtype="int32")
        output, cache = layer.cached_call(inputs, cache, position)
        outputs.append(array(output))
        index += size
    assert {n: tuple(v.shape) for n, v in cache.items()} == {
        n: leaf.shape for n, leaf in spec.items()
    }
    assert {array(leaf).dtype.name for leaf in cache.values()} == {"float32"}
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize(
    "sizes", on_every_backend([[1] * LENGTH, [2, 1, 4], [LENGTH]], ([2, 1, 4],))
)
def test_step_by_step(sizes):
    layer = built(linear(key_dim=4, value_dim=6, feature_map="relu"))
    x, keep = normal(BATCH, LENGTH, WIDTH), lengths_mask([7, 4, 0], LENGTH)
    expected = layer(x, padding_mask=keep, use_causal_mask=True)
    assert_close(stepped(layer, x, keep, sizes), expected)


def test_the_state_does_not_grow_with_the_length():
    layer = built(linear(key_dim=4, value_dim=6))
    shapes = [
        {name: leaf.shape for name, leaf in layer.cache_spec(2, length, ()).items()}
        for length in (1, 10_000)
    ]
    expected = {"state": (2, HEADS, 4, 6), "normalizer": (2, HEADS, 4)}
    assert shapes == [expected, expected]


@pytest.mark.on_pytorch
def test_a_language_model_steps_as_it_runs():
    model = language_model()
    step = step_model(model, LENGTH)
    leaves = keras.tree.flatten(step.empty_cache(BATCH))
    assert {leaf.shape[0] for leaf in leaves} == {BATCH}
    tokens = np.random.default_rng(0).integers(1, VOCABULARY, (BATCH, LENGTH))
    tokens[1, 3:] = tokens[2, 0] = 0
    cache, logits = step.empty_cache(BATCH), []
    for index in range(LENGTH):
        new, cache = step.step(
            ops.convert_to_tensor(tokens[:, index : index + 1], dtype="int32"),
            ops.convert_to_tensor(index, dtype="int32"),
            {},
            cache,
        )
        logits.append(array(new))
    expected = model({"target": tokens.astype("int32")})
    assert_close(np.concatenate(logits, axis=1), expected)


def log_probabilities(model, tokens):
    logits = array(model({"target": tokens.astype("int32")})).astype("float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.slow
def test_greedy_tokens_are_those_without_a_cache():
    model, room = language_model(), 10
    prompts = np.array([[START, 5, 0], [START, 7, 4], [START, 11, 0]])
    lengths = np.count_nonzero(prompts, axis=1)
    inputs = {"target": prompts.astype("int32")}
    found = array(generate(model, inputs, max_new_tokens=room)["token_ids"])[:, 0]
    assert len({tuple(row) for row in found}) == 3
    rows = np.arange(3)
    tokens = np.pad(prompts, ((0, 0), (0, room)))
    for position in range(room):
        last = lengths + position - 1
        best = log_probabilities(model, tokens)[rows, last].argmax(-1)
        assert_equal(found[:, position], best)
        tokens[rows, last + 1] = best


@pytest.mark.slow
def test_states_follow_the_hypotheses_of_a_beam_search():
    """The score of what was found is what the whole model gives for it."""
    model = language_model()
    prompts = np.array([[START, 5], [START, 7]], "int32")
    found = generate(
        model,
        {"target": prompts},
        end_token_id=END,
        max_new_tokens=8,
        strategy=BeamSearch(4, length_penalty=0.0, num_return_sequences=4),
    )
    ids, scores, lengths = (
        array(found[name]) for name in ("token_ids", "scores", "lengths")
    )
    for row, beam in np.ndindex(2, 4):
        tokens = np.concatenate([prompts[row], ids[row, beam]])
        each = log_probabilities(model, tokens[None])[0]
        span = range(2, 2 + lengths[row, beam])
        total = sum(each[i - 1, tokens[i]] for i in span)
        np.testing.assert_allclose(scores[row, beam], total, rtol=1e-4)


def test_attention_maps():
    tokens = np.array([[4, 5, 6, 7, 0], [5, 0, 8, 9, 1]], "int32")
    maps = attention_maps(language_model(), {"target": tokens})
    assert len(maps) == 2
    for weights in maps.values():
        assert weights.shape == (2, HEADS, 5, 5)
        assert_close(weights.sum(-1), np.ones((2, HEADS, 5)))
        assert not weights[:, :, ~np.tri(5, dtype=bool)].any()
        assert not weights[0, :, :, 4].any() and not weights[1, :, :, 1].any()
        assert len(np.unique(np.round(weights[0, :, 4, :4], 4))) > 6


def test_heads_are_weighed_and_pruned():
    model = language_model()
    for attention_layer in (layer.attention for layer in model.layers[-3:-1]):
        kernel = array(attention_layer._projections.output.kernel).copy()
        kernel[1] = 0.0
        attention_layer._projections.output.kernel.assign(kernel)
    inputs = {"target": np.array([[4, 5, 6, 7]], "int32")}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    importance = head_importance(model, [(inputs, inputs["target"])], loss)
    for found in importance.values():
        assert found[1] == 0 and found[[0, 2]].min() > 0
    smaller = prune_heads(model, {name: [1] for name in importance})
    assert smaller.count_params() < model.count_params()
    assert_close(smaller(inputs), model(inputs))


BAD_ARGUMENTS = {
    "feature map": ({"feature_map": "gelu"}, r"one of \('elu', 'relu'\).*'gelu'"),
    "no name": ({"feature_map": ["elu"]}, r"`feature_map` must be.*\['elu'\]"),
    "dropout": ({"dropout": 0.1}, "no argument `dropout`.*dropout=0.1"),
    "kernel": ({"attention_kernel": "full"}, "no argument `attention_kernel`.*softmax"),
    "heads": ({"key_dim": 0}, "`key_dim` must be a positive int"),
}


@pytest.mark.parametrize("bad", BAD_ARGUMENTS)
def test_bad_arguments_are_refused(bad):
    arguments, message = BAD_ARGUMENTS[bad]
    with pytest.raises(ValueError, match=message):
        linear(**arguments)


def test_masks_that_cannot_be_served_are_refused():
    layer = linear(name="sums")
    x, dense = normal(BATCH, LENGTH, WIDTH), np.ones((BATCH, LENGTH, LENGTH), bool)
    message = r"'sums'.*only padding and causal masks.*shape \(3, 7, 7\)"
    with pytest.raises(ValueError, match=message):
        layer(x, attention_mask=dense)
    with pytest.raises(ValueError, match="only padding and causal masks"):
        mask = keras.Input((LENGTH, LENGTH), dtype="bool")
        layer(keras.Input((LENGTH, WIDTH)), attention_mask=mask)
    with pytest.raises(ValueError, match="only padding and causal masks"):
        decoder()(x, decoder_attention_mask=dense)
    with pytest.raises(ValueError, match="as long as.*padding_mask of shape"):
        layer(x, padding_mask=np.ones((BATCH, LENGTH + 1), bool))
    with pytest.raises(ValueError, match="must be a bool.*float32"):
        layer(x, padding_mask=np.ones((BATCH, LENGTH), "float32"))


def test_steps_over_the_future_are_refused():
    layer = built(linear(name="looks_ahead"))
    with pytest.raises(ValueError, match="'looks_ahead' attends to tokens that"):
        layer.cached_call({"inputs": normal(1, 1, WIDTH)}, {}, 0)
