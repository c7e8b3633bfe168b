"""Sentence pairs as a `tf.data` pipeline for a translation model."""

import dataclasses
import itertools
import logging
import os

import numpy as np
import tensorflow as tf

from keras_attn.text.data.length_buckets import Buckets, boundaries_up_to, padded
from keras_attn.text.data.pairs import checked_pairs, read_pairs

_log = logging.getLogger("keras_attn")


@dataclasses.dataclass(frozen=True)
class DatasetReport:
    """What became of the pairs: the `report` of a `translation_dataset`."""

    num_pairs: int
    """Pairs in the dataset."""
    num_truncated: int
    """Pairs of these that were cut to the longest length."""
    num_dropped: int
    """Pairs left out, since they were too long."""
    num_batches: int
    """Batches of one epoch."""
    batch_shapes: tuple
    """Shapes of batches, `(batch size, source length, target length)`; none if they are
    not padded to bucket boundaries."""


def translation_dataset(
    pairs,
    source_tokenizer,
    target_tokenizer=None,
    *,
    max_source_length=128,
    max_target_length=128,
    batch_tokens=4096,
    batch_size=None,
    bucket_boundaries=None,
    pad_to_bucket_boundary=True,
    shuffle=True,
    seed=0,
    on_long="truncate",
    on_bad="raise",
    source_column=0,
    target_column=1,
):
    """Makes batches of token ids from sentence pairs, for `model.fit`.

    The source ends with the end id; it begins with its tokenizer's `source_start_id`,
    if there is one. The target input is the start id and the tokens;
    the labels are the tokens and the end id, so that `labels[t]` follows `target[t]`.
    Padding is each tokenizer's `padding_id`: tell the loss, where that is not 0. The
    corpus is tokenized once and kept in memory.

    Pairs of similar length share a batch. Only the last batch of an epoch can be
    smaller than the others of its lengths, so a model compiled by XLA is compiled for
    few shapes: those in `dataset.report.batch_shapes`.

    Args:
        pairs: Path of a file that `read_pairs` reads, or an iterable of
            `(source, target)`, both `str`.
        source_tokenizer: One of our tokenizers.
        target_tokenizer: The same for the target; the source's if None.
        max_source_length: The longest source, in tokens, start and end id included.
        max_target_length: The longest target, in tokens, the start id included.
        batch_tokens: The largest number of source and of target tokens in a batch,
            padding included. A batch has at least one pair all the same.
        batch_size: Pairs in a batch, whatever their length; takes the place of
            `batch_tokens`.
        bucket_boundaries: Increasing lengths, in tokens, of the longer side of a pair.
            A few up to the longest by default.
        pad_to_bucket_boundary: Pad batches to the bucket's length, else to the longest
            row.
        shuffle: A new order in each epoch, else always the same one: that of `pairs`,
            but for the grouping by length.
        seed: Of the shuffling. The same seed gives the same epochs in any process; the
            global seeds of Keras and TensorFlow play no part.
        on_long: What to do with a pair that is too long: `"truncate"` or `"drop"`.
            Either is logged with the number of pairs, and is in the report.
        on_bad: See `read_pairs`.
        source_column: See `read_pairs`.
        target_column: See `read_pairs`.

    Returns:
        A `tf.data.Dataset` of `({"source": int32 (B, S), "target": int32 (B, T)},
        labels int32 (B, T))` that knows its number of batches. Its attribute `report`
        is a `DatasetReport`.

    Raises:
        FileNotFoundError: If `pairs` is the path of no file.
        ValueError: If a pair is bad (see `read_pairs`), no pair is left, or an argument
            is out of range.

    Example:
        tokenizer = CharacterTokenizer.train(["ab", "ba"])
        dataset = translation_dataset([("ab", "ba")], tokenizer, batch_size=1)
        inputs, labels = next(iter(dataset))
    """
    source_start = source_tokenizer.source_start_id
    source_start = np.array([] if source_start is None else [source_start], np.int32)
    for name, number, least in (
        ("max_source_length", max_source_length, 2 + len(source_start)),
        ("max_target_length", max_target_length, 2),
        ("batch_tokens", batch_tokens, 1),
        ("batch_size", 1 if batch_size is None else batch_size, 1),
        ("seed", seed, 0),
    ):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise ValueError(
                f"Expected {name} to be a whole number of at least {least}. "
                f"Received: {name}={number!r}"
            )
    if on_long not in ("truncate", "drop"):
        raise ValueError(
            "Expected on_long to be 'truncate' or 'drop'. "
            f"Received: on_long={on_long!r}"
        )
    longest = max(max_source_length, max_target_length)
    boundaries = _checked_boundaries(bucket_boundaries, longest)
    if isinstance(pairs, str | os.PathLike):
        pairs = read_pairs(pairs, source_column, target_column, on_bad)
    else:
        pairs = checked_pairs(pairs, on_bad)
    target_tokenizer = target_tokenizer or source_tokenizer
    sources, targets, num_long = _fitted(
        _tokenized([source for source, _ in pairs], source_tokenizer),
        _tokenized([target for _, target in pairs], target_tokenizer),
        max_source_length - len(source_start) - 1,
        max_target_length - 1,
        on_long,
        f"{max_source_length=}, {max_target_length=}",
    )
    source_end = [source_tokenizer.end_token_id]
    start = [target_tokenizer.start_token_id]
    end = [target_tokenizer.end_token_id]
    columns = (
        [np.concatenate([source_start, s, source_end]) for s in sources],
        [np.append(start, target) for target in targets],
        [np.append(target, end) for target in targets],
    )
    padding_ids = [
        source_tokenizer.padding_id,
        target_tokenizer.padding_id,
        target_tokenizer.padding_id,
    ]
    lengths = [max(len(s), len(t)) for s, t in zip(*columns[:2], strict=True)]
    sizes = [batch_size or max(1, batch_tokens // bound) for bound in boundaries]
    buckets = Buckets(lengths, boundaries, sizes)

    def width(bucket, rows, longest):
        if pad_to_bucket_boundary:
            return min(boundaries[bucket], longest)
        return max(map(len, rows))

    def make(batch):
        bucket, numbers = batch
        source, target, labels = (
            padded(rows, width(bucket, rows, longest), padding_id)
            for rows, longest, padding_id in zip(
                [[column[i] for i in numbers] for column in columns],
                [max_source_length, max_target_length, max_target_length],
                padding_ids,
                strict=True,
            )
        )
        return {"source": source, "target": target}, labels

    in_order = buckets.batches(np.arange(len(lengths)))
    epochs = itertools.count()

    def epoch():
        if not shuffle:
            return map(make, in_order)
        random = np.random.default_rng([seed, next(epochs)])
        batches = buckets.batches(random.permutation(len(lengths)))
        return (make(batches[i]) for i in random.permutation(len(batches)))

    ids = tf.TensorSpec([None, None], tf.int32)
    dataset = tf.data.Dataset.from_generator(
        epoch, output_signature=({"source": ids, "target": ids}, ids)
    )
    # How many batches there are depends on the lengths, not on the order.
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(in_order)))
    dataset = dataset.prefetch(2)
    shapes = set()
    if pad_to_bucket_boundary:
        limits = (max_source_length, max_target_length)
        shapes = {
            (len(numbers), *(width(bucket, None, longest) for longest in limits))
            for bucket, numbers in in_order
        }
    dataset.report = DatasetReport(
        num_pairs=len(lengths),
        num_truncated=num_long if on_long == "truncate" else 0,
        num_dropped=num_long if on_long == "drop" else 0,
        num_batches=len(in_order),
        batch_shapes=tuple(sorted(shapes)),
    )
    return dataset


def _fitted(sources, targets, source_room, target_room, on_long, limits):
    """Cuts or drops what is too long, and logs it; `(sources, targets, how many)`.

    Args:
        source_room, target_room: how many ids of texts there is room for, special ones
            not counted.
        limits: str, what was asked for.
    """
    too_long = np.array([len(row) > source_room for row in sources])
    too_long |= [len(row) > target_room for row in targets]
    num_long = int(too_long.sum())
    if num_long:
        deed = "truncated to" if on_long == "truncate" else "dropped, being longer than"
        _log.warning("%d of %d pairs %s %s", num_long, len(sources), deed, limits)
    if on_long == "drop":
        kept = np.flatnonzero(~too_long)
        if not len(kept):
            raise ValueError(
                f"Expected at least one pair that is short enough. Received: {limits}"
            )
        sources = [sources[i] for i in kept]
        targets = [targets[i] for i in kept]
    return (
        [source[:source_room] for source in sources],
        [target[:target_room] for target in targets],
        num_long,
    )


def _checked_boundaries(boundaries, longest):
    if boundaries is None:
        return boundaries_up_to(longest)
    boundaries = list(boundaries)
    if (
        not boundaries
        or not all(isinstance(bound, int) and bound > 0 for bound in boundaries)
        or sorted(set(boundaries)) != boundaries
    ):
        raise ValueError(
            "Expected bucket_boundaries to be increasing whole numbers above 0. "
            f"Received: bucket_boundaries={boundaries}"
        )
    return [bound for bound in boundaries if bound < longest] + [longest]


def _tokenized(texts, tokenizer, batch_size=1024):
    """One int32 array of ids for each text."""
    rows = []
    for begin in range(0, len(texts), batch_size):
        ids = tokenizer.tokenize(texts[begin : begin + batch_size])
        rows += np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])
    return rows
