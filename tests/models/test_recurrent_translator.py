"""`recurrent_translator`: training, decoding, attention maps and saving."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops
from tensors import array, assert_close, fill_weights

from keras_attn import layers, models
from keras_attn.decoding import BeamSearch, GreedySearch, Sampling, generate
from keras_attn.inspection import attention_maps

V, START, END, LENGTH = 5, 1, 3, 4
SOURCE = np.array([[1, 2, 4, 0, 0], [4, 4, 2, 1, 3], [2, 0, 0, 0, 0]], "int32")
KINDS = {
    "none": dict(attention=None),
    "additive": dict(attention="additive"),
    "dot": dict(attention="dot", input_feeding=False),
    "general": dict(attention="general", cell="lstm", num_layers=2, residual=True),
    "heads": dict(attention=layers.CrossAttention(2)),
}


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    full = models.recurrent_translator(
        V, hidden_dim=8, dropout=0, **KINDS[request.param]
    )
    return fill_weights(full, seed=3)


def generated(model, source, strategy, **options):
    outputs = generate(
        model,
        {"source": source},
        start_token_id=START,
        end_token_id=END,
        max_new_tokens=LENGTH,
        strategy=strategy,
        **options,
    )
    return {name: array(value) for name, value in outputs.items()}


def exhaustive_search(model, source, count):
    """Return the `count` best of all sequences and their float64 scores.

    The score is the sum of log probabilities, computed without a cache.
    """
    sequences = [
        tokens
        for length in range(1, LENGTH + 1)
        for tokens in itertools.product(range(V), repeat=length)
        if END not in tokens[:-1] and (tokens[-1] == END or length == LENGTH)
    ]
    # A generated 0 is padding for the model, here as in decoding.
    target = np.zeros((len(sequences), LENGTH), "int32")
    target[:, 0] = START
    for row, tokens in zip(target, sequences):
        row[1 : len(tokens)] = tokens[: LENGTH - 1][: len(tokens) - 1]
    inputs = {"source": np.repeat(source[None], len(target), 0), "target": target}
    logits = array(model(inputs)).astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    scores = [
        sum(row[position, token] for position, token in enumerate(tokens))
        for row, tokens in zip(log_probs, sequences)
    ]
    return sorted(zip(scores, sequences), reverse=True)[:count]


@pytest.mark.slow
def test_beam_search_finds_the_best_sequences(model):
    outputs = generated(model, SOURCE, BeamSearch(V**3, 0.0, num_return_sequences=3))
    for i, source in enumerate(SOURCE):
        for rank, (score, tokens) in enumerate(exhaustive_search(model, source, 3)):
            length = outputs["lengths"][i, rank]
            assert tuple(outputs["token_ids"][i, rank, :length]) == tokens
            np.testing.assert_allclose(outputs["scores"][i, rank], score, atol=1e-4)


@pytest.fixture(scope="module")
def greedy(model):
    """The outputs of greedy search, with the alignment if there is attention."""
    has_scores = model.get_layer("decoder").has_attention_scores
    return generated(model, SOURCE, GreedySearch(), return_alignment=has_scores)


@pytest.mark.slow
def test_one_beam_is_greedy_and_batch_elements_are_independent(model, greedy):
    beam = generated(model, SOURCE, BeamSearch(1))
    np.testing.assert_array_equal(beam["token_ids"], greedy["token_ids"])
    for i in range(3):
        single = generated(model, SOURCE[i : i + 1], GreedySearch())
        np.testing.assert_array_equal(single["token_ids"][0], greedy["token_ids"][i])


def test_sampling_with_a_seed(model):
    first, second = (
        generated(model, SOURCE, Sampling(temperature=2.0, seed=3)) for _ in range(2)
    )
    np.testing.assert_array_equal(first["token_ids"], second["token_ids"])


def test_maps_are_the_attention_weights_of_the_decoder(model, greedy):
    target = np.array([[1, 2, 4], [1, 1, 1], [1, 4, 0]], "int32")
    inputs = {"source": SOURCE, "target": target}
    decoder = model.get_layer("decoder")
    if not decoder.has_attention_scores:
        with pytest.raises(ValueError, match="must have an attention layer"):
            attention_maps(model, inputs)
        with pytest.raises(ValueError, match="must have an attention layer"):
            generated(model, SOURCE, GreedySearch(), return_alignment=True)
        return
    (weights,) = attention_maps(model, inputs).values()
    heads = 2 if isinstance(decoder.attention, layers.CrossAttention) else 1
    assert weights.shape == (3, heads, 3, 5)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    padding = np.broadcast_to((SOURCE == 0)[:, None, None], weights.shape)
    assert not weights[padding].any()
    encoded, state = model.get_layer("encoder")(
        model.get_layer("target_embedding")(SOURCE)
    )
    _, scores = decoder(
        model.get_layer("target_embedding")(target),
        encoded,
        state,
        return_attention_scores=True,
    )
    assert_close(np.reshape(array(scores), weights.shape), weights)
    assert greedy["alignment"].shape == (3, 1, LENGTH, 5)


@pytest.mark.slow
def test_training_and_saving(model, tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.models.clone_model(model)
    rng = np.random.default_rng(0)
    source = rng.integers(1, V, (64, 5)).astype("int32")
    data = {"source": source, "target": np.pad(source[:, :-1], [(0, 0), (1, 0)])}
    model.compile(
        keras.optimizers.Adam(3e-2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    losses = model.fit(data, source, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0] * 0.9
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_close(loaded(data), model(data), 1e-5)


def test_two_vocabularies():
    model = models.recurrent_translator(V, 7, hidden_dim=8, share_embeddings=False)
    assert model.output_shape == (None, None, 7)
    shapes = [tuple(w.shape) for w in model.weights if "embed" in w.path]
    assert sorted(shapes) == [(5, 8), (7, 8), (8, 7)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(attention="location"), "`attention` must be one of"),
        (dict(attention=keras.layers.Attention()), "`attention` must be one of"),
        (dict(cell="rnn"), "`cell` must be one of"),
        (dict(hidden_dim=7), "`units` must be even"),
        (dict(num_layers=0), "`num_layers` must be a positive int"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        models.recurrent_translator(V, **arguments)


@pytest.mark.slow
def test_half_precision():
    model = models.recurrent_translator(V, hidden_dim=8, dtype="mixed_bfloat16")
    outputs = generated(model, SOURCE, BeamSearch(2))
    assert np.isfinite(outputs["scores"]).all()
    assert ops.shape(outputs["token_ids"]) == (3, 1, LENGTH)
