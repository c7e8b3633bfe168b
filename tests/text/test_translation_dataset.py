import gzip
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.text import CharacterTokenizer, translation_dataset

LETTERS = "abcdefghijklmnopqrstuvwxyz "
SOURCE = CharacterTokenizer.train([LETTERS])
TARGET = CharacterTokenizer.train([LETTERS[::-1] * 2 + "zyx."])
RANDOM = np.random.default_rng(3)


def word(length):
    return "".join(RANDOM.choice(list("abcdexyz"), length))


PAIRS = [
    (word(RANDOM.integers(1, 40)), word(RANDOM.integers(1, 40))) for _ in range(97)
]


def examples(dataset):
    """Return the examples without padding, `(source, target, labels)`, in order."""
    return [
        tuple(row[row != 0].tolist() for row in (source, target, labels))
        for inputs, batch_labels in dataset.as_numpy_iterator()
        for source, target, labels in zip(
            inputs["source"], inputs["target"], batch_labels, strict=True
        )
    ]


def expected_examples(pairs, target_tokenizer=TARGET):
    source_ids = {token: i for i, token in enumerate(SOURCE.tokens())}
    target_ids = {token: i for i, token in enumerate(target_tokenizer.tokens())}
    return [
        (
            [source_ids[c] for c in source] + [3],
            [2] + [target_ids[c] for c in target],
            [target_ids[c] for c in target] + [3],
        )
        for source, target in pairs
    ]


def test_ids_and_types():
    pairs = [("ab", "xyz"), ("c", "y")]
    dataset = translation_dataset(pairs, SOURCE, TARGET, batch_size=2, shuffle=False)
    inputs, labels = next(iter(dataset))
    assert sorted(inputs) == ["source", "target"]
    for ids in (*inputs.values(), labels):
        assert ids.dtype == tf.int32
        assert ids.shape == (2, 8)
    assert examples(dataset) == expected_examples(pairs)
    one = translation_dataset(pairs, SOURCE, batch_size=2, shuffle=False)
    assert examples(one) == expected_examples(pairs, SOURCE)
    spec = dataset.element_spec
    assert spec[0]["source"].shape.as_list() == [None, None]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("pad_to_bucket_boundary", [True, False])
def test_every_pair_once_per_epoch(shuffle, pad_to_bucket_boundary):
    dataset = translation_dataset(
        PAIRS,
        SOURCE,
        TARGET,
        batch_tokens=100,
        shuffle=shuffle,
        pad_to_bucket_boundary=pad_to_bucket_boundary,
    )
    assert dataset.cardinality() == dataset.report.num_batches
    for _ in range(2):
        batches = list(dataset)
        assert len(batches) == dataset.report.num_batches
        shapes = set()
        for inputs, labels in batches:
            assert tf.size(labels) <= 100 and tf.size(inputs["source"]) <= 100
            assert inputs["target"].shape == labels.shape
            shapes.add((len(labels), inputs["source"].shape[1], labels.shape[1]))
        if pad_to_bucket_boundary:
            assert shapes == set(dataset.report.batch_shapes)
            # Five boundaries up to 40, then 128, and one batch that is not full.
            assert len(shapes) <= 6
        else:
            assert dataset.report.batch_shapes == ()
        assert sorted(examples(dataset)) == sorted(expected_examples(PAIRS))
    assert dataset.report.num_pairs == 97


def test_without_shuffling_the_order_is_that_of_the_pairs():
    dataset = translation_dataset(
        PAIRS, SOURCE, TARGET, batch_size=4, bucket_boundaries=[128], shuffle=False
    )
    assert examples(dataset) == expected_examples(PAIRS)
    assert examples(dataset) == expected_examples(PAIRS)


def test_seed_determines_the_order():
    def epochs(seed, count=3):
        dataset = translation_dataset(PAIRS, SOURCE, batch_tokens=200, seed=seed)
        result = []
        for number in range(count):
            # The global seeds have no effect.
            if seed and number == 1:
                keras.utils.set_random_seed(number)
            result.append(examples(dataset))
        return result

    first, again, other = epochs(1), epochs(1), epochs(0)
    assert first == again
    assert first[0] != first[1] != first[2]
    assert first[0] != other[0]
    assert first[0] != expected_examples(PAIRS, SOURCE)


def test_first_epoch_continues_the_order():
    def dataset(**options):
        return translation_dataset(PAIRS, SOURCE, batch_size=20, seed=5, **options)

    whole = dataset()
    epochs = [examples(whole) for _ in range(4)]
    assert all(epochs[i] != epochs[j] for i in range(4) for j in range(i))
    for first in range(4):
        resumed = dataset(first_epoch=first)
        assert [examples(resumed) for _ in range(4 - first)] == epochs[first:]
    for value in (-1, 1.0, True, None):
        with pytest.raises(ValueError, match=f"Received: first_epoch={value}"):
            dataset(first_epoch=value)


@pytest.mark.slow
def test_reading_only_the_first_batch_does_not_count_as_an_epoch():
    def dataset(**options):
        return translation_dataset(PAIRS, SOURCE, batch_size=20, seed=5, **options)

    whole = dataset()
    epochs = [examples(whole) for _ in range(3)]
    data = dataset()
    for epoch in epochs:
        for _ in range(2):
            inputs, _ = next(iter(data))
            ids = inputs["source"].numpy()
            assert [row[row != 0].tolist() for row in ids] == [
                source for source, _, _ in epoch[: len(ids)]
            ]
        iterator = iter(data)  # kept, so that it could read ahead
        next(iterator)
        assert examples(data) == epoch
    # Two batches count; the passes of two iterators at the same time are one epoch.
    data = dataset()
    assert len(list(data.take(2))) == 2
    assert examples(data) == epochs[1]
    data = dataset()
    assert len(list(zip(data, data))) == len(list(data))
    assert examples(data) == epochs[2]
    # A single batch is a whole epoch.
    data = translation_dataset(PAIRS, SOURCE, batch_size=200, bucket_boundaries=[40])
    assert data.report.num_batches == 1
    assert examples(data) != examples(data)


class BertTokenizer:
    """A stand-in for a tokenizer of a different library."""

    padding_id = start_token_id = end_token_id = source_start_id = 0


@pytest.mark.parametrize("tokenizer", [BertTokenizer(), "bert", None])
def test_tokenizers_of_other_libraries_are_refused(tokenizer):
    name = "NoneType" if tokenizer is None else type(tokenizer).__name__
    message = f"Expected {{}} to be a tokenizer of `keras_attn.text`.*Received.*{name}"
    with pytest.raises(TypeError, match=message.format("source_tokenizer")):
        translation_dataset([("a", "b")], tokenizer)
    if tokenizer is not None:
        with pytest.raises(TypeError, match=message.format("target_tokenizer")):
            translation_dataset([("a", "b")], SOURCE, tokenizer)


@pytest.mark.parametrize("on_long", ["truncate", "drop"])
def test_long_pairs_are_counted(on_long, caplog):
    pairs = [("a" * 7, "b"), ("a" * 8, "b"), ("a", "b" * 5), ("a", "b" * 6)]
    with caplog.at_level(logging.WARNING, "keras_attn"):
        dataset = translation_dataset(
            pairs,
            SOURCE,
            max_source_length=8,
            max_target_length=6,
            batch_size=9,
            shuffle=False,
            on_long=on_long,
        )
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith("2 of 4 pairs ")
    assert caplog.messages[0].endswith("max_source_length=8, max_target_length=6")
    if on_long == "truncate":
        assert "truncated" in caplog.text
        remaining = [("a" * 7, "b"), ("a" * 7, "b"), ("a", "b" * 5), ("a", "b" * 5)]
    else:
        assert "dropped" in caplog.text
        remaining = [pairs[0], pairs[2]]
    assert examples(dataset) == expected_examples(remaining, SOURCE)
    report = dataset.report
    assert report.num_pairs == len(remaining)
    assert report.num_truncated == (2 if on_long == "truncate" else 0)
    assert report.num_dropped == (2 if on_long == "drop" else 0)
    assert report.batch_shapes == ((len(remaining), 8, 6),)


def test_nothing_is_logged_when_all_fits(caplog):
    translation_dataset(PAIRS, SOURCE)
    assert caplog.records == []


def test_from_a_file(tmp_path, caplog):
    path = tmp_path / "pairs.tsv.gz"
    lines = "".join(f"{number}\t{t}\t{s}\n" for number, (s, t) in enumerate(PAIRS))
    path.write_bytes(gzip.compress((lines + "bad\n").encode()))
    options = {"shuffle": False, "source_column": 2, "target_column": 1}
    with pytest.raises(ValueError, match="line 98 has only 1 column"):
        translation_dataset(path, SOURCE, TARGET, **options)
    dataset = translation_dataset(
        str(path), SOURCE, TARGET, bucket_boundaries=[128], on_bad="skip", **options
    )
    assert examples(dataset) == expected_examples(PAIRS)
    assert "Skipped 1 of 98: line 98" in caplog.text
    with pytest.raises(FileNotFoundError, match="Received: path="):
        translation_dataset(tmp_path / "none", SOURCE)


def test_works_with_fit_and_shows_its_length():
    size = SOURCE.vocabulary_size
    source, target = (
        keras.Input([None], name=n, dtype="int32") for n in ("source", "target")
    )
    embedded = keras.layers.Embedding(size, 3)
    pooled = keras.layers.GlobalAveragePooling1D(keepdims=True)(embedded(source))
    logits = keras.layers.Dense(size)(embedded(target) + pooled)
    model = keras.Model({"source": source, "target": target}, logits)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=0
        )
    )
    dataset = translation_dataset(PAIRS, SOURCE, batch_tokens=400)
    history = model.fit(dataset, epochs=2, verbose=0, shuffle=False)
    assert history.params["steps"] == dataset.report.num_batches
    # Keras's own pass to build the model, on some backends, does not count.
    third = translation_dataset(PAIRS, SOURCE, batch_tokens=400, first_epoch=2)
    assert examples(dataset) == examples(third)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_source_length": 1}, "max_source_length=1"),
        ({"max_target_length": 2.5}, "max_target_length=2.5"),
        ({"batch_tokens": 0}, "batch_tokens=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"seed": None}, "seed=None"),
        ({"on_long": "cut"}, "on_long='cut'"),
        ({"on_bad": "cut"}, "on_bad='cut'"),
        ({"bucket_boundaries": [5, 3]}, "bucket_boundaries=.5, 3"),
        ({"bucket_boundaries": []}, "bucket_boundaries="),
        ({"max_source_length": 2, "on_long": "drop"}, "max_source_length=2"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match="Expected .* Received: .*" + message):
        translation_dataset([("abc", "abc")], SOURCE, **options)


@pytest.mark.parametrize(
    "pairs, message",
    [
        ([], "at least one sentence pair"),
        ([("a", "b"), ("a", "")], "pair 1 has an empty target side"),
        ([("a", "b"), "ab"], "pair 1 is not two str but 'ab'"),
        ([("a", 3)], "pair 0 is not two str"),
        (3, "Received: pairs=3"),
    ],
)
def test_bad_pairs(pairs, message):
    with pytest.raises(ValueError, match=message):
        translation_dataset(pairs, SOURCE)
