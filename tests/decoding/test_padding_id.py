"""Padding of another id than 0, against the same models with relabelled ids."""

import keras
import numpy as np
import pytest
from keras import ops
from stacked_models import HEADS, D, V, fill_weights, ids

from keras_attn import layers
from keras_attn.decoding import BeamSearch, Sampling, generate, stream

# Every id is one less, and padding, 0, becomes the last: 0 is a token then.
PADDING, LENGTH = V - 1, 6
START, END = 2, 3
PROMPTS = np.array([[1, 4, 6, 2, 8], [0, 5, 0, 0, 0], [7, 9, 1, 0, 0]], "int32")
SOURCE = np.array([[5, 1, 7], [9, 0, 0], [1, 1, 0]], "int32")
STRATEGIES = {
    "greedy": None,
    "beam": BeamSearch(3, num_return_sequences=2),
    # The likeliest first, and so in an order that does not depend on the ids.
    "sampling": Sampling(top_k=6, repetition_penalty=1.5, seed=4),
}


def relabelled(values):
    return (np.asarray(values) - 1) % V


def make(padding_id):
    """A translator with segments beside its target, whose padding has this id."""
    source, target, segments = ids("source"), ids("target"), ids("segments")
    embedding = layers.TokenEmbedding(V, D, scale=True, padding_id=padding_id)
    position = layers.SinusoidalPositionEmbedding()
    context = layers.TransformerEncoder(12, HEADS)(position(embedding(source)))
    x = position(embedding(target)) + keras.layers.Embedding(2, D)(segments)
    x = layers.TransformerDecoder(12, HEADS)(x, context)
    inputs = {"source": source, "target": target, "segments": segments}
    return keras.Model(inputs, embedding(x, reverse=True))


@pytest.fixture(scope="module")
def models():
    """Two that differ in the names of their tokens."""
    model, other = fill_weights(make(0), seed=1), make(PADDING)
    weights = [
        weight[relabelled(np.arange(V)).argsort()] if weight.shape[0] == V else weight
        for weight in model.get_weights()
    ]
    other.set_weights(weights)
    return model, other


def asked(relabel=lambda values: values):
    """Arguments for a search, with ids as `relabel` makes them."""
    segments = np.ones(PROMPTS.shape, "int32") * [[0], [1], [1]]
    return {
        "inputs": {
            "source": relabel(SOURCE),
            "target": relabel(PROMPTS),
            "segments": segments,
        },
        "prefix": relabel([[1, 0], [0, 0], [5, 1]]),
        "end_token_id": int(relabel(END)),
        "banned_token_ids": [int(relabel(0))],
        "max_new_tokens": LENGTH,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["greedy", "sampling", pytest.param("beam", marks=pytest.mark.on_pytorch)],
)
def test_equal_to_the_model_with_relabelled_ids(models, name):
    model, other = models
    options = {"strategy": STRATEGIES[name], "return_alignment": True}
    expected = generate(model, **asked(), **options)
    found = generate(other, **asked(relabelled), **options, padding_id=PADDING)
    token_ids = ops.convert_to_numpy(found["token_ids"])
    lengths = ops.convert_to_numpy(found["lengths"])
    assert lengths.min() < LENGTH
    written = token_ids[np.arange(LENGTH) < lengths[..., None]]
    assert 0 in written and PADDING not in written
    expected = {key: ops.convert_to_numpy(value) for key, value in expected.items()}
    np.testing.assert_array_equal(token_ids, relabelled(expected["token_ids"]))
    np.testing.assert_array_equal(lengths, expected["lengths"])
    for key in ("scores", "alignment"):
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_tokens_as_they_come(models):
    expected = [*stream(models[0], **asked())]
    found = [*stream(models[1], **asked(relabelled))]  # it masks that padding
    assert any(0 in tokens for tokens in found)
    assert any(PADDING in tokens for tokens in found)
    np.testing.assert_array_equal(found, relabelled(expected))


def test_hypotheses_that_do_not_exist_are_padding_throughout(models):
    options = asked(relabelled)
    banned = [token for token in range(V) if token != options["end_token_id"]]
    options.update(prefix=None, banned_token_ids=banned)
    beam = BeamSearch(3, num_return_sequences=3)
    found = generate(models[1], **options, strategy=beam, padding_id=PADDING)
    token_ids = ops.convert_to_numpy(found["token_ids"])
    assert (token_ids[:, 0, 0] == options["end_token_id"]).all()
    token_ids[:, 0, 0] = PADDING
    assert (token_ids == PADDING).all()


def test_ragged_ids_are_filled_up(models):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("ragged tensors are TensorFlow's")
    options = asked(relabelled)
    expected = generate(models[1], **options)
    for name, lengths in (("source", [3, 1, 2]), ("target", [5, 2, 3])):
        dense = options["inputs"][name]
        options["inputs"][name] = tf.RaggedTensor.from_tensor(dense, lengths)
    found = generate(models[1], **options)
    np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])


@pytest.mark.slow
def test_each_input_is_filled_up_with_what_is_masked_in_it():
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("ragged tensors are TensorFlow's")
    source, target = ids("source"), ids("target")
    embedding = layers.TokenEmbedding(V, D, padding_id=None)
    context = layers.TransformerEncoder(12, HEADS)(
        embedding(source), padding_mask=ops.not_equal(source, 5)
    )
    x = layers.TransformerDecoder(12, HEADS)(
        embedding(target), context, encoder_padding_mask=ops.not_equal(source, 5)
    )
    inputs = {"source": source, "target": target}
    model = fill_weights(keras.Model(inputs, embedding(x, reverse=True)), seed=1)
    rows = tf.ragged.constant([[1, 2, 3], [4]], tf.int32)
    options = {"start_token_id": START, "end_token_id": END, "max_new_tokens": LENGTH}
    found = generate(model, {"source": rows}, **options, padding_id=7)
    for i, row in enumerate(rows):
        alone = generate(model, {"source": row[None]}, **options, padding_id=7)
        np.testing.assert_array_equal(found["token_ids"][i], alone["token_ids"][0])
        np.testing.assert_allclose(found["scores"][i], alone["scores"][0], rtol=1e-4)


def test_padding_is_no_repetition():
    """The end token may be padding as well: it has not been said before."""
    following = {4: 5, 5: 6, 6: END}
    table = np.ones((V, V), "float32")
    table[list(following), list(following.values())] = 9.0
    target = ids("target")
    logits = keras.layers.Embedding(V, V, weights=[table])(target)
    prompts = np.array([[1, 7, 4], [5, END, END]], "int32")
    found = generate(
        keras.Model(target, logits),
        prompts,
        strategy=Sampling(top_k=1, repetition_penalty=1e9),
        end_token_id=END,
        max_new_tokens=4,
        padding_id=END,
    )
    expected = [[[5, 6, END, END]], [[6, END, END, END]]]
    assert ops.convert_to_numpy(found["token_ids"]).tolist() == expected
    assert ops.convert_to_numpy(found["lengths"]).tolist() == [[3], [2]]


def prompts_of_known_lengths():
    yield [[1, 4, 0]], [[1, 4, 0]]
    yield np.array([[1, 4, 0]]), [[1, 4, 0]]
    yield [[1, 4, 0], [6, 0]], [[1, 4, 0], [6, 0]]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        rows = [[1, 4, 0], [6], [0, 0]]
        yield tf.ragged.constant(rows, tf.int32), rows


@pytest.mark.slow
@pytest.mark.on_pytorch
def test_where_nothing_is_masked_prompts_that_tell_their_length_have_no_padding():
    target = ids("target")
    embedding = layers.TokenEmbedding(V, D, padding_id=None)
    x = layers.SinusoidalPositionEmbedding()(embedding(target))
    x = layers.TransformerDecoder(12, HEADS)(x)
    model = fill_weights(keras.Model(target, embedding(x, reverse=True)), seed=2)
    options = {"end_token_id": END, "max_new_tokens": LENGTH}
    for prompts, rows in prompts_of_known_lengths():
        found = generate(model, prompts, **options)
        streamed = np.stack([*stream(model, prompts, **options)], axis=1)
        for i, row in enumerate(rows):
            expected = generate(model, [row], **options, padding_id=V - 1)
            length = int(expected["lengths"][0, 0])
            tokens = ops.convert_to_numpy(expected["token_ids"])[0, 0, :length]
            tokens = [*tokens, *[0] * (LENGTH - length)]
            assert ops.convert_to_numpy(found["token_ids"])[i, 0].tolist() == tokens
            given = [token for token in streamed[i] if token]
            assert given == [token for token in tokens if token]
    dense = generate(model, np.array([[1, 4, 0], [6, 0, 0]]), **options)
    padded = generate(model, [[1, 4], [6]], **options)
    np.testing.assert_array_equal(dense["token_ids"], padded["token_ids"])


def test_bad_padding(models):
    options = asked(relabelled)
    with pytest.raises(ValueError, match="`padding_id` must be in .*padding_id=13"):
        generate(models[1], **options, padding_id=V)
    options["inputs"]["target"] = np.array([[1, PADDING, 2]] * 3)
    with pytest.raises(ValueError, match=r"padding \(12\) only at its end"):
        generate(models[1], **options, padding_id=PADDING)
