"""`tf.data` pipeline of sentence pairs for a translation model."""

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np
import tensorflow as tf

from keras_attn._types import Tensor
from keras_attn.text.data.length_buckets import Buckets, default_boundaries, pad
from keras_attn.text.data.pairs import read_pairs, validate_pairs
from keras_attn.text.tokenizers.tokenizer import Tokenizer, check_tokenizer

_log = logging.getLogger("keras_attn")

# The inputs of a model by name, and the labels.
_Batch: TypeAlias = tuple[dict[str, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class DatasetReport:
    """Statistics of a `translation_dataset`, its attribute `report`."""

    num_pairs: int
    """Number of pairs in the dataset."""
    num_truncated: int
    """Number of these pairs that were truncated to the maximum lengths."""
    num_dropped: int
    """Number of pairs that were dropped because they were too long."""
    num_batches: int
    """Number of batches per epoch."""
    batch_shapes: tuple[tuple[int, int, int], ...]
    """Shapes of batches, `(batch size, source length, target length)`; empty if batches
    are not padded to bucket boundaries."""


def translation_dataset(
    pairs: str | os.PathLike[str] | Iterable[tuple[str, str]],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer | None = None,
    *,
    max_source_length: int = 128,
    max_target_length: int = 128,
    batch_tokens: int = 4096,
    batch_size: int | None = None,
    bucket_boundaries: Iterable[int] | None = None,
    pad_to_bucket_boundary: bool = True,
    shuffle: bool = True,
    seed: int = 0,
    on_long: Literal["truncate", "drop"] = "truncate",
    on_bad: Literal["raise", "skip"] = "raise",
    source_column: int = 0,
    target_column: int = 1,
    first_epoch: int = 0,
) -> tf.data.Dataset:
    """Create batches of token ids from sentence pairs, for `model.fit`.

    A source consists of its tokens and the end id; it starts with the tokenizer's
    `source_start_id`, if there is one. A target consists of the start id and its
    tokens, the labels of the tokens and the end id, so that `labels[t]` follows
    `target[t]`. Padding is the `padding_id` of each tokenizer; if it is not 0, pass it
    to the loss. The corpus is tokenized once and kept in memory.

    Pairs of similar length share a batch. Only the last batch of an epoch can be
    smaller than the others with its lengths, so a model that is compiled by XLA is
    compiled for few shapes: those in `dataset.report.batch_shapes`.

    Args:
        pairs: Path of a file for `read_pairs`, or an iterable of `(source, target)`,
            both `str`.
        source_tokenizer: A `keras_attn.text` tokenizer.
        target_tokenizer: The same for the target. Default: `source_tokenizer`.
        max_source_length: Maximum length of a source in tokens, including the start and
            end id.
        max_target_length: Maximum length of a target in tokens, including the start id.
        batch_tokens: Maximum number of source tokens and of target tokens in a batch,
            including padding. A batch contains at least one pair, even if that is
            longer.
        batch_size: Number of pairs in a batch, for all lengths; replaces
            `batch_tokens`.
        bucket_boundaries: Increasing lengths in tokens, for the longer side of a pair.
            Default: a few lengths up to the longer of the maximum lengths.
        pad_to_bucket_boundary: Whether to pad a batch to the boundary of its bucket,
            instead of to its longest sequence.
        shuffle: Whether each epoch has a new order. Otherwise the order is that of
            `pairs`, except that pairs are grouped by length.
        seed: Seed of the shuffling. The order of an epoch depends only on this seed
            and on the number of the epoch, in every process, regardless of the global
            seeds of Keras and TensorFlow.
        on_long: Treatment of a pair that is too long: `"truncate"` or `"drop"`. The
            number of such pairs is logged, and is in the report.
        on_bad: See `read_pairs`.
        source_column: See `read_pairs`.
        target_column: See `read_pairs`.
        first_epoch: The number of the first epoch, from 0. Each iteration over the
            dataset is the next epoch, except that one that reads only the first of
            several batches does not count. To resume training after `k` epochs, create
            the dataset with `first_epoch=k` and pass `initial_epoch=k` to `fit`.

    Returns:
        A `tf.data.Dataset` of `({"source": int32 (B, S), "target": int32 (B, T)},
        labels int32 (B, T))` with a known number of batches. Its attribute `report` is
        a `DatasetReport`.

    Raises:
        FileNotFoundError: If `pairs` is a path and the file does not exist.
        TypeError: If a tokenizer is not one of `keras_attn.text`.
        ValueError: If a pair is bad (see `read_pairs`), no pair is left, or an argument
            is invalid.

    Example:
        >>> from keras_attn.text import CharacterTokenizer, translation_dataset
        >>> tokenizer = CharacterTokenizer.train(["ab"])
        >>> dataset = translation_dataset(
        ...     [("ab", "ba"), ("a", "b")], tokenizer, batch_size=2, shuffle=False,
        ...     pad_to_bucket_boundary=False,
        ... )
        >>> inputs, labels = next(iter(dataset))
        >>> inputs["source"].numpy().tolist()
        [[4, 5, 3], [4, 3, 0]]
        >>> inputs["target"].numpy().tolist()
        [[2, 5, 4], [2, 5, 0]]
        >>> labels.numpy().tolist()
        [[5, 4, 3], [5, 3, 0]]
        >>> dataset.report.num_pairs
        2
    """
    check_tokenizer("source_tokenizer", source_tokenizer)
    if target_tokenizer is None:
        target_tokenizer = source_tokenizer
    check_tokenizer("target_tokenizer", target_tokenizer)
    source_start = source_tokenizer.source_start_id
    source_start = np.array([] if source_start is None else [source_start], np.int32)
    _validate_integer("max_source_length", max_source_length, 2 + len(source_start))
    _validate_integer("max_target_length", max_target_length, 2)
    _validate_integer("batch_tokens", batch_tokens, 1)
    _validate_integer("batch_size", 1 if batch_size is None else batch_size, 1)
    _validate_integer("seed", seed, 0)
    _validate_integer("first_epoch", first_epoch, 0)
    if on_long not in ("truncate", "drop"):
        raise ValueError(
            "Expected on_long to be 'truncate' or 'drop'. "
            f"Received: on_long={on_long!r}"
        )
    boundaries = _validate_boundaries(
        bucket_boundaries, max(max_source_length, max_target_length)
    )
    if isinstance(pairs, str | os.PathLike):
        pairs = read_pairs(pairs, source_column, target_column, on_bad)
    else:
        pairs = validate_pairs(pairs, on_bad)
    sources, targets, num_long = _limit_lengths(
        _tokenize([source for source, _ in pairs], source_tokenizer),
        _tokenize([target for _, target in pairs], target_tokenizer),
        max_source_length - len(source_start) - 1,
        max_target_length - 1,
        on_long,
        f"{max_source_length=}, {max_target_length=}",
    )
    source_end = [source_tokenizer.end_token_id]
    start = [target_tokenizer.start_token_id]
    end = [target_tokenizer.end_token_id]
    batches = _Batches(
        sources=[np.concatenate([source_start, s, source_end]) for s in sources],
        targets=[np.append(start, target) for target in targets],
        labels=[np.append(target, end) for target in targets],
        padding_ids=(source_tokenizer.padding_id, target_tokenizer.padding_id),
        max_lengths=(max_source_length, max_target_length),
        boundaries=boundaries,
        batch_sizes=[batch_size or max(1, batch_tokens // b) for b in boundaries],
        pad_to_bucket_boundary=pad_to_bucket_boundary,
    )
    dataset = batches.dataset(shuffle, seed, first_epoch)
    dataset.report = DatasetReport(  # pyright: ignore[reportAttributeAccessIssue]
        num_pairs=len(sources),
        num_truncated=num_long if on_long == "truncate" else 0,
        num_dropped=num_long if on_long == "drop" else 0,
        num_batches=len(batches.in_order),
        batch_shapes=batches.shapes(),
    )
    return dataset


class _Batches:
    """The batches of a tokenized corpus.

    Args:
        sources: List of int arrays, the source ids of each pair.
        targets: The same for the target ids.
        labels: The same for the labels, with the lengths of `targets`.
        padding_ids: The padding ids of sources and of targets.
        max_lengths: The maximum lengths of sources and of targets.
        boundaries: Increasing lengths of the buckets.
        batch_sizes: The batch size of each bucket.
        pad_to_bucket_boundary: Whether to pad to the length of the bucket.

    Attributes:
        in_order: List of `(bucket, indices)`, the batches without shuffling.
    """

    def __init__(
        self,
        *,
        sources: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        labels: Sequence[np.ndarray],
        padding_ids: tuple[int, int],
        max_lengths: tuple[int, int],
        boundaries: Sequence[int],
        batch_sizes: Sequence[int],
        pad_to_bucket_boundary: bool,
    ) -> None:
        self._sources, self._targets, self._labels = sources, targets, labels
        self._padding_ids = padding_ids
        self._max_lengths = max_lengths
        self._boundaries = boundaries
        self._pad_to_boundary = pad_to_bucket_boundary
        lengths = [max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        self._buckets = Buckets(lengths, boundaries, batch_sizes)
        self.in_order = self._buckets.batches(np.arange(len(lengths)))

    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        """Return the shapes of batches, or an empty tuple if they are not fixed."""
        if not self._pad_to_boundary:
            return ()
        shapes = set()
        for bucket, indices in self.in_order:
            source, target = (
                min(self._boundaries[bucket], limit) for limit in self._max_lengths
            )
            shapes.add((len(indices), source, target))
        return tuple(sorted(shapes))

    def dataset(self, shuffle: bool, seed: int, first_epoch: int) -> tf.data.Dataset:
        """Return a `tf.data.Dataset`; each iteration over it is an epoch.

        The number of the epoch is fixed when the first batch is read. Only reading the
        second batch completes the count: a dataset is often iterated for one batch, to
        inspect it or, by Keras on JAX and PyTorch, to build a model before training.
        The count is therefore made outside of the prefetched part.
        """
        next_epoch = first_epoch
        batches_of = functools.lru_cache(maxsize=2)(
            lambda epoch: self._shuffled(seed, epoch) if shuffle else self.in_order
        )

        def begin_epoch() -> Iterator[int]:
            yield next_epoch

        def count(epoch: int) -> None:
            nonlocal next_epoch
            next_epoch = max(next_epoch, epoch + 1)

        def first_batch(epoch: np.int64) -> Iterator[_Batch]:
            if len(self.in_order) == 1:
                count(int(epoch))
            yield self._build(batches_of(int(epoch))[0])

        def other_batches(epoch: np.int64) -> Iterator[_Batch]:
            count(int(epoch))
            return map(self._build, batches_of(int(epoch))[1:])

        ids = tf.TensorSpec([None, None], tf.int32)

        def batches(
            generator: Callable[[np.int64], Iterator[_Batch]], epoch: Tensor
        ) -> tf.data.Dataset:
            return tf.data.Dataset.from_generator(
                generator,
                args=(epoch,),
                output_signature=({"source": ids, "target": ids}, ids),
            )

        dataset = tf.data.Dataset.from_generator(
            begin_epoch, output_signature=tf.TensorSpec([], tf.int64)
        ).flat_map(
            lambda epoch: batches(first_batch, epoch).concatenate(
                batches(other_batches, epoch).prefetch(2)
            )
        )
        # The number of batches depends on the lengths, not on the order.
        num_batches = len(self.in_order)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
        # A prefetch that TensorFlow adds would read the second batch on its own.
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        return dataset.with_options(options)

    def _shuffled(self, seed: int, epoch: int) -> list[tuple[int, np.ndarray]]:
        """Return the batches of an epoch, in their order."""
        random = np.random.default_rng([seed, epoch])
        batches = self._buckets.batches(random.permutation(len(self._sources)))
        return [batches[i] for i in random.permutation(len(batches))]

    def _build(self, batch: tuple[int, np.ndarray]) -> _Batch:
        """Return the inputs and labels of a batch `(bucket, indices)`."""
        bucket, indices = batch

        def padded(column: Sequence[np.ndarray], side: int) -> np.ndarray:
            sequences = [column[i] for i in indices]
            if self._pad_to_boundary:
                length = min(self._boundaries[bucket], self._max_lengths[side])
            else:
                length = max(map(len, sequences))
            return pad(sequences, length, self._padding_ids[side])

        source, target = padded(self._sources, 0), padded(self._targets, 1)
        return {"source": source, "target": target}, padded(self._labels, 1)


def _validate_integer(name: str, value: object, minimum: int) -> None:
    """Raise a ValueError if `value` is not an integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(
            f"Expected {name} to be an integer of at least {minimum}. "
            f"Received: {name}={value!r}"
        )


def _limit_lengths(
    sources: list[np.ndarray],
    targets: list[np.ndarray],
    max_source_ids: int,
    max_target_ids: int,
    on_long: Literal["truncate", "drop"],
    limits: str,
) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Truncate or drop pairs that are too long, and log their number.

    Args:
        sources: The ids of each source, without special ones.
        targets: The same for the targets.
        max_source_ids: Maximum number of ids of a source.
        max_target_ids: Maximum number of ids of a target.
        on_long: `"truncate"` or `"drop"`.
        limits: The limits as given by the user, for messages.

    Returns:
        A tuple `(sources, targets, num_long)`, the last the number of long pairs.
    """
    too_long = np.array([len(source) > max_source_ids for source in sources])
    too_long |= [len(target) > max_target_ids for target in targets]
    num_long = int(too_long.sum())
    if num_long:
        action = "truncated to" if on_long == "truncate" else "dropped, longer than"
        _log.warning("%d of %d pairs %s %s", num_long, len(sources), action, limits)
    if on_long == "drop":
        short = np.flatnonzero(~too_long)
        if not len(short):
            raise ValueError(
                f"Expected at least one pair within the limits. Received: {limits}"
            )
        sources = [sources[i] for i in short]
        targets = [targets[i] for i in short]
    return (
        [source[:max_source_ids] for source in sources],
        [target[:max_target_ids] for target in targets],
        num_long,
    )


def _validate_boundaries(
    boundaries: Iterable[int] | None, max_length: int
) -> list[int]:
    """Return the bucket boundaries, the last of which is `max_length`."""
    if boundaries is None:
        return default_boundaries(max_length)
    boundaries = list(boundaries)
    if (
        not boundaries
        or not all(isinstance(bound, int) and bound > 0 for bound in boundaries)
        or sorted(set(boundaries)) != boundaries
    ):
        raise ValueError(
            "Expected bucket_boundaries to be increasing integers above 0. "
            f"Received: bucket_boundaries={boundaries}"
        )
    return [bound for bound in boundaries if bound < max_length] + [max_length]


def _tokenize(
    texts: list[str], tokenizer: Tokenizer, batch_size: int = 1024
) -> list[np.ndarray]:
    """Return an int32 array of ids per text."""
    sequences = []
    for begin in range(0, len(texts), batch_size):
        ids = tokenizer.tokenize(texts[begin : begin + batch_size])
        sequences += np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])
    return sequences
