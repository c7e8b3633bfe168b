"""Masks: joined in any order, evaluated over any span."""

# Unpacked sequences, results of several types and invalid arguments.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false

from collections.abc import Callable
from typing import Any

import hypothesis
import keras
import numpy as np
import pytest
from hypothesis import strategies
from tensors import array, assert_equal

from keras_attn.ops import masks, segment_positions
from keras_attn.ops.masks.positions import Blocks

LENGTH, TOTAL, BATCH, HEADS = 5, 7, 2, 3
properties = hypothesis.settings(
    max_examples=40, deadline=None, derandomize=True, database=None
)


def make_mask(kind: str, seed: int) -> tuple[masks.Mask, Callable[..., Any]]:
    """Return a mask and its predicate of batch element, head, query and key."""
    rng = np.random.default_rng(seed)
    if kind == "causal":
        offset = int(rng.integers(-3, 4))
        return masks.causal(offset), lambda b, n, i, j: j <= i + offset
    if kind == "padding":
        keep = rng.random((BATCH, TOTAL)) < 0.6
        return masks.padding(keep), lambda b, n, i, j: keep[b, j]
    if kind == "dense":
        keep = rng.random((BATCH, LENGTH, TOTAL)) < 0.6
        return masks.dense(keep), lambda b, n, i, j: keep[b, i, j]
    if kind == "window":
        size, first = int(rng.integers(1, 5)), int(rng.integers(0, 3))
        return masks.window(
            size, num_global=first
        ), lambda b, n, i, j: abs(i - j) < size or j < first or i < first
    if kind == "segments":
        queries, keys = (rng.integers(0, 3, (BATCH, x)) for x in (LENGTH, TOTAL))
        return masks.segments(
            queries, keys
        ), lambda b, n, i, j: queries[b, i] == keys[b, j]
    keep = rng.random((BATCH, HEADS, LENGTH, TOTAL)) < 0.6
    return masks.dense(keep), lambda b, n, i, j: keep[b, n, i, j]


def evaluate(mask: Any, query: tuple[int, int], key: tuple[int, int]) -> np.ndarray:
    result = array(mask.evaluate(masks.Span(*query), masks.Span(*key)))
    assert result.dtype == bool and result.ndim == 4
    return np.broadcast_to(result, (BATCH, HEADS, query[1], key[1]))


kinds = strategies.sampled_from(
    ["causal", "padding", "dense", "per_head", "window", "segments"]
)
rules = strategies.lists(
    strategies.tuples(kinds, strategies.integers(0, 99)), min_size=1, max_size=4
)


@strategies.composite
def spans(draw: strategies.DrawFn, total: int) -> tuple[int, int]:
    start = draw(strategies.integers(0, total - 1))
    return start, draw(strategies.integers(1, total - start))


@properties
@hypothesis.given(rules, spans(LENGTH), spans(TOTAL))
def test_any_span_is_a_slice_of_the_full_mask(
    rules: list[tuple[str, int]], query: tuple[int, int], key: tuple[int, int]
) -> None:
    pairs = [make_mask(*rule) for rule in rules]
    mask = pairs[0][0]
    for other, _ in pairs[1:]:
        mask = mask & other
    expected = np.array(
        [
            all(predicate(*index) for _, predicate in pairs)
            for index in np.ndindex(BATCH, HEADS, LENGTH, TOTAL)
        ]
    ).reshape(BATCH, HEADS, LENGTH, TOTAL)
    assert_equal(evaluate(mask, (0, LENGTH), (0, TOTAL)), expected)
    rows, columns = slice(query[0], sum(query)), slice(key[0], sum(key))
    assert_equal(evaluate(mask, query, key), expected[:, :, rows, columns])
    as_tensors = [
        tuple(keras.ops.convert_to_tensor(n, dtype="int32") for n in span)
        for span in (query, key)
    ]
    result = mask.evaluate(*(masks.Span(*span) for span in as_tensors))
    shape = (BATCH, HEADS, query[1], key[1])
    assert_equal(np.broadcast_to(array(result), shape), expected[:, :, rows, columns])
    if not expected.any(-1).all():
        assert mask.can_exclude_every_key


def test_can_exclude_every_key() -> None:
    assert not masks.causal().can_exclude_every_key
    assert not masks.causal(2).can_exclude_every_key
    assert masks.causal(-1).can_exclude_every_key
    joined = masks.causal() & masks.padding(np.ones((1, 3), bool))
    assert joined.can_exclude_every_key
    assert not (masks.causal() & masks.causal(1)).can_exclude_every_key


def test_none_is_neutral() -> None:
    causal = masks.causal()
    assert (causal & None) is causal
    assert (None & causal) is causal
    assert masks.join() is None
    assert masks.join(None, None) is None
    assert masks.combine() is None


def test_combine_joins_its_masks() -> None:
    keep = np.array([[True, False, True], [True, True, False]])
    dense = np.array([[[True, True, True], [False, True, True], [True] * 3]] * 2)
    mask = masks.combine(keep, dense, use_causal_mask=True)
    result = array(mask.evaluate(masks.Span(0, 3), masks.Span(0, 3)))
    assert_equal(result[:, 0], keep[:, None] & dense & np.tri(3, dtype=bool))
    causal = masks.combine(use_causal_mask=True)
    result = array(causal.evaluate(masks.Span(0, 3), masks.Span(0, 3)))
    assert_equal(result[0, 0], np.tri(3, dtype=bool))


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "int64"])
def test_integer_masks(dtype: str) -> None:
    keep = np.array([[1, 0, 2]], dtype)
    result = masks.padding(keep).evaluate(masks.Span(0, 1), masks.Span(0, 3))
    assert_equal(array(result)[0, 0, 0], [True, False, True])


@pytest.mark.parametrize(
    ("make", "shape", "dtype", "message"),
    [
        (masks.padding, (2, 3), "float32", "must be a bool tensor.*of dtype float32"),
        (masks.dense, (2, 3, 3), "float16", "must be a bool tensor.*of dtype float16"),
        (masks.padding, (2, 3, 3), "bool", r"\(batch, keys\).*\(2, 3, 3\)"),
        (masks.padding, (3,), "bool", r"\(batch, keys\).*\(3,\)"),
        (masks.dense, (3,), "bool", r"\(batch, heads, queries, keys\).*\(3,\)"),
    ],
)
def test_invalid_masks(
    make: Callable[..., Any], shape: tuple[int, ...], dtype: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(np.ones(shape, dtype))
    name = "padding_mask" if make is masks.padding else "attention_mask"
    with pytest.raises(ValueError, match=message):
        masks.check(**{name: keras.KerasTensor(shape, dtype)})


def test_masks_are_immutable() -> None:
    mask = masks.causal()
    with pytest.raises(AttributeError):
        mask.offset = 1


@properties
@hypothesis.given(rules, strategies.integers(1, 4), strategies.integers(1, 4))
def test_overlap_and_covers(
    rules: list[tuple[str, int]], size_q: int, size_k: int
) -> None:
    """Pairs of blocks without `overlap` are all False, those of `covers` all True.

    The converse holds for a single window without global positions, for blocks within
    the length.
    """
    mask = masks.join(*(make_mask(*rule)[0] for rule in rules))
    starts_q, starts_k = np.arange(0, LENGTH, size_q), np.arange(0, TOTAL, size_k)
    blocks = (
        Blocks(starts_q.astype("int32"), size_q),
        Blocks(starts_k.astype("int32"), size_k),
    )
    tables = [
        np.full((1, 1), default) if result is None else array(result)
        for result, default in ((mask.overlap(*blocks), 1), (mask.covers(*blocks), 0))
    ]
    full = evaluate(mask, (0, LENGTH), (0, TOTAL))
    shape = (len(starts_q), len(starts_k))
    overlap, covers = (np.broadcast_to(table, shape) for table in tables)
    is_window = [kind for kind, _ in rules] == ["window"] and mask.num_global == 0
    for a, b in np.ndindex(shape):
        i, j = starts_q[a], starts_k[b]
        block = full[:, :, i : i + size_q, j : j + size_k]
        assert overlap[a, b] or not block.any()
        assert block.all() or not covers[a, b]
        if is_window and i + size_q <= LENGTH and j + size_k <= TOTAL:
            assert (overlap[a, b], covers[a, b]) == (block.any(), block.all())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: masks.window(0), "`size` of a window.*at least 1.*size=0"),
        (lambda: masks.window(2.5), "`size` of a window.*size=2.5"),
        (lambda: masks.window(True), "`size` of a window.*size=True"),
        (lambda: masks.window(3, -1), "`num_global` of a window.*num_global=-1"),
        (
            lambda: masks.segments(np.ones((2, 3))),
            "`segment_ids` must be integers.*float",
        ),
        (
            lambda: masks.segments(np.ones(3, int)),
            r"`segment_ids` must be of shape.*\(3,\)",
        ),
    ],
)
def test_invalid_windows_and_segments(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.every_backend
def test_positions_in_packed_sequences() -> None:
    segments = [[4, 4, 4, 2, 2, 9], [1, 2, 2, 2, 2, 2]]
    result = segment_positions(segments)
    assert_equal(result, [[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 3, 4]])
