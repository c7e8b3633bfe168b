"""Attention with a window, step by step: with a ring of the last positions alone."""

import functools

import keras
import numpy as np
import pytest
from naive_search import greedy
from stacked_models import arrays, embed, full_logits, ids, model, stepped_logits
from tensors import array, assert_close, fill_weights, normal

from keras_attn import decoding, layers

BATCH, LENGTH, WIDTH, HEADS, WINDOW = 2, 13, 12, 4, 3
X = normal(BATCH, LENGTH, WIDTH)
KEEP = np.random.default_rng(0).random((BATCH, LENGTH)) < 0.8
KEEP[:, 0] = False  # padding at the front, and at several places
SEGMENTS = np.sort(np.random.default_rng(1).integers(1, 4, (BATCH, LENGTH)), axis=1)

# One by one, runs shorter and longer than the window, all at once.
RUNS = [
    [1] * LENGTH,
    [2, 1, 1, 2, 3, 1, 3],
    [1, 4, 1, 7],
    [5, 8],
    [LENGTH],
]
POSITIONS = {
    "plain": dict,
    "rotary, grouped": lambda: {
        "position": layers.RotaryPositionEmbedding(),
        "num_key_value_heads": 2,
    },
    "ALiBi, multi-query": lambda: {
        "position": layers.AlibiPositionBias(),
        "num_key_value_heads": 1,
    },
    "relative, sinks": lambda: {
        "position": layers.RelativePositionBias(bidirectional=False),
        "use_sinks": True,
        "value_dim": 5,
    },
}


def made(num_global, name="plain", sliding_window=WINDOW, **options):
    layer = layers.MultiHeadSelfAttention(
        HEADS,
        key_dim=4,
        sliding_window=sliding_window,
        num_global_tokens=num_global,
        **POSITIONS[name](),
        **options,
    )
    layer.build(X.shape)
    return fill_weights(layer)


def in_steps(layer, sizes, room=LENGTH, segment_ids=None):
    names = {"inputs"} if segment_ids is None else {"inputs", "segment_ids"}
    spec = layer.cache_spec(BATCH, room, names)
    cache = {n: keras.ops.zeros(leaf.shape, leaf.dtype) for n, leaf in spec.items()}
    index, outputs = 0, []
    for size in sizes:
        run = slice(index, index + size)
        more = {} if segment_ids is None else {"segment_ids": segment_ids[:, run]}
        inputs = {
            "inputs": keras.ops.convert_to_tensor(X[:, run]),
            "padding_mask": KEEP[:, run],
            "use_causal_mask": True,
            **more,
        }
        position = keras.ops.convert_to_tensor(index, dtype="int32")
        output, cache = layer.cached_call(inputs, cache, position)
        assert {n: tuple(leaf.shape) for n, leaf in cache.items()} == {
            n: leaf.shape for n, leaf in spec.items()
        }
        outputs.append(array(output))
        index += size
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("num_global", [0, 2])
@pytest.mark.parametrize("name", POSITIONS)
def test_steps_are_the_full_call(name, num_global):
    layer = made(num_global, name)
    expected = layer(X, padding_mask=KEEP, use_causal_mask=True)
    without = layers.MultiHeadSelfAttention.from_config(
        {**layer.get_config(), "sliding_window": None, "num_global_tokens": 0}
    )
    without.build(X.shape)
    without.set_weights(layer.get_weights())
    beyond = array(without(X, padding_mask=KEEP, use_causal_mask=True) - expected)
    assert np.abs(beyond).max() > 0.05  # the window is felt
    for sizes in RUNS:
        assert_close(in_steps(layer, sizes), expected)


@pytest.mark.parametrize(
    "sizes",
    [[1] * LENGTH, pytest.param([1, 4, 1, 7], marks=pytest.mark.every_backend)],
)
def test_steps_with_all_of_it(sizes):
    layer = made(2, "rotary, grouped", use_sinks=True, logit_soft_cap=2.0)
    expected = layer(X, padding_mask=KEEP, use_causal_mask=True, segment_ids=SEGMENTS)
    assert_close(in_steps(layer, sizes, segment_ids=SEGMENTS), expected)


@pytest.mark.parametrize(
    ("window", "num_global"),
    [(1, 0), (1, 2), (2, 5), (LENGTH, 0), (LENGTH, 3), (90, 1)],
)
@pytest.mark.parametrize("sizes", [RUNS[0], RUNS[2]])
def test_windows_of_other_sizes(window, num_global, sizes):
    """A ring of one; more global tokens than a window has; no shorter than the text."""
    layer = made(num_global, "rotary, grouped", window)
    expected = layer(X, padding_mask=KEEP, use_causal_mask=True)
    assert_close(in_steps(layer, sizes), expected)
    assert_close(in_steps(layer, sizes, room=500), expected)


@pytest.mark.parametrize("num_global", [0, 2])
def test_segments(num_global):
    layer = made(num_global, "ALiBi, multi-query")
    expected = layer(X, padding_mask=KEEP, use_causal_mask=True, segment_ids=SEGMENTS)
    for sizes in RUNS:
        assert_close(in_steps(layer, sizes, segment_ids=SEGMENTS), expected)


@pytest.mark.parametrize("room", [100, 10**6])
def test_a_cache_is_as_long_as_the_window_and_the_global_tokens(room):
    spec = made(2, "rotary, grouped").cache_spec(7, room, {"segment_ids"})
    assert spec["key"].shape == spec["value"].shape == (7 * 2, WINDOW + 2, 4)
    assert spec["padding_mask"].shape == spec["segment_ids"].shape == (7, WINDOW + 2)
    step = decoding.step_model(language_model(), room, validate=False)
    lengths = {leaf.shape[1] for leaf in keras.tree.flatten(step.empty_cache(1))}
    assert lengths == {WINDOW, WINDOW + 1}


# Whole models


@functools.cache
def language_model():
    """A block with a window, and another with a global token beside it."""
    target = ids("target")
    x = keras.layers.Embedding(13, 8)(target)
    for num_global in 0, 1:
        attention = layers.MultiHeadSelfAttention(
            4,
            num_key_value_heads=2,
            position=layers.RotaryPositionEmbedding(),
            sliding_window=WINDOW,
            num_global_tokens=num_global,
        )
        x = layers.TransformerDecoder(12, 4, attention=attention)(x)
    full, rng = model(x, target), np.random.default_rng(9)
    for weight in full.weights:
        if len(weight.shape) > 1:  # With random biases, one token always wins.
            fan_in = np.prod(weight.shape[:-1])
            weight.assign(2 * rng.normal(size=weight.shape) / np.sqrt(fan_in))
    return full


PROMPT = np.array([[3, 4], [5, 6], [9, 1]], "int32")
NEW = 11  # several times the window


@pytest.mark.slow
@pytest.mark.parametrize("prompt_length", [1, 2, 7])
def test_greedy_search(prompt_length):
    prompt = np.random.default_rng(0).integers(1, 13, (3, prompt_length), "int32")
    full = language_model()
    found = decoding.generate(full, {"target": prompt}, max_new_tokens=NEW)
    tokens, scores, _ = greedy(full, {}, prompt, -1, NEW)
    np.testing.assert_array_equal(array(found["token_ids"])[:, 0], tokens)
    assert_close(array(found["scores"])[:, 0], scores, 1e-4)
    assert len(np.unique(tokens[:, WINDOW:])) > 3


def naive_beams(full, prompt, beams):
    """Hypotheses `(beams, NEW)` and their scores, all tokens run again every time."""
    rows, scores = np.array([prompt]), np.zeros(1)
    for _ in range(NEW):
        target = np.zeros((beams, len(prompt) + NEW), "int32")
        target[: len(rows), : rows.shape[1]] = rows
        logits = full_logits(full, {"target": target}).astype("float64")
        logits = logits[: len(rows), rows.shape[1] - 1]
        table = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        table = (scores[:, None] + table).ravel()
        best = np.argsort(-table)[:beams]
        parent, token = np.divmod(best, logits.shape[-1])
        rows, scores = np.hstack([rows[parent], token[:, None]]), table[best]
    return rows[:, len(prompt) :], scores


@pytest.mark.slow
def test_beam_search():
    full = language_model()
    found = decoding.generate(
        full,
        {"target": PROMPT},
        max_new_tokens=NEW,
        strategy=decoding.BeamSearch(3, 0.0, 3),
    )
    for row, prompt in enumerate(PROMPT):
        tokens, scores = naive_beams(full, prompt, 3)
        np.testing.assert_array_equal(array(found["token_ids"])[row], tokens)
        assert_close(array(found["scores"])[row], scores, 1e-4)


@pytest.mark.slow
def test_segments_beside_the_target():
    target, segments = ids("target"), ids("segments")
    x = embed(target)
    for num_global in 0, 1:
        attention = layers.MultiHeadSelfAttention(
            4,
            position=layers.AlibiPositionBias(),
            sliding_window=4,
            num_global_tokens=num_global,
        )
        x = layers.TransformerDecoder(12, 4, attention=attention)(
            x, segment_ids=segments
        )
    x = layers.MultiHeadSelfAttention(2)(x, use_causal_mask=True, segment_ids=segments)
    full = fill_weights(model(x, segments, target))
    inputs = arrays(full, target=LENGTH)
    inputs["segments"] = np.sort(inputs["segments"] % 3, axis=1)
    step = decoding.step_model(full, LENGTH)
    assert step.aligned_inputs == {"segments"}
    expected = full_logits(full, inputs)
    one = {**inputs, "segments": np.ones_like(inputs["segments"])}
    assert np.abs(full_logits(full, one) - expected).max() > 0.05
    for sizes in [1] * LENGTH, [2, 5, 1, 5]:
        assert_close(stepped_logits(step, inputs, sizes), expected)
