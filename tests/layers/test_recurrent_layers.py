"""`RecurrentEncoder` and `RecurrentDecoder`."""

import keras
import numpy as np
import pytest
from backend_marks import on_every_backend
from keras import ops
from tensors import array, assert_close, fill_weights, normal

from keras_attn import layers

SOURCE, TARGET = normal(3, 7, 5), normal(3, 4, 5, seed=1)
KEEP = np.arange(7) < np.array([[7], [3], [0]])
STATE = normal(3, 9, seed=2)


def filled(layer, *inputs):
    layer(*inputs)
    return fill_weights(layer)


@pytest.mark.parametrize("cell", on_every_backend(["gru", "lstm"], ("gru",)))
def test_padding_changes_nothing_and_is_zero(cell):
    encoder = filled(layers.RecurrentEncoder(6, 2, cell=cell), SOURCE)
    outputs, state = map(array, encoder(SOURCE, padding_mask=KEEP))
    assert state.shape == (3, {"gru": 12, "lstm": 24}[cell])
    assert not outputs[~KEEP].any()
    assert not outputs[2].any() and not state[2].any(), "a row that is all padding"
    cropped = encoder(SOURCE[1:2, :3])
    assert_close(outputs[1:2, :3], cropped[0])
    assert_close(state[1:2], cropped[1])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_encoder_is_a_stack_of_keras_layers(cell):
    encoder = filled(layers.RecurrentEncoder(6, 2, cell, False, residual=True), SOURCE)
    stock = {"gru": keras.layers.GRU, "lstm": keras.layers.LSTM}[cell]
    first, second = (stock(6, return_sequences=True) for _ in range(2))
    first.build(SOURCE.shape)
    second.build((3, 7, 6))
    weights = encoder.get_weights()
    first.set_weights(weights[:3])
    second.set_weights(weights[3:])
    below = first(SOURCE)
    assert_close(encoder(SOURCE)[0], below + second(below))


def test_without_attention_the_decoder_is_a_keras_layer():
    decoder = filled(layers.RecurrentDecoder(6), TARGET)
    stock = keras.layers.GRU(6, return_sequences=True)
    stock.build(TARGET.shape)
    stock.set_weights(decoder.get_weights())
    assert_close(decoder(TARGET), stock(TARGET))


def numpy_gru(x, state, kernel, recurrent, bias):
    """The GRU of Keras (`reset_after`), one step, float64."""
    z, r, h = np.split(x @ kernel + bias[0], 3, axis=-1)
    rz, rr, rh = np.split(state @ recurrent + bias[1], 3, axis=-1)
    z, r = (1 / (1 + np.exp(-v)) for v in (z + rz, r + rr))
    return z * state + (1 - z) * np.tanh(h + r * rh)


@pytest.mark.parametrize("feeding", on_every_backend([True, False], (True,)))
def test_the_decoder_written_out(feeding):
    """Luong's equations: state, scores, context, output, fed back or not."""
    decoder = filled(
        layers.RecurrentDecoder(
            6, attention=layers.DotProductAttention("general"), input_feeding=feeding
        ),
        *(TARGET, SOURCE, STATE),
    )
    weights = {w.path.split("/", 1)[1]: array(w) for w in decoder.weights}
    cell = [v for k, v in weights.items() if "cell0" in k]
    state = np.tanh(
        STATE @ weights["bridge/state0/kernel"] + weights["bridge/state0/bias"]
    )
    keys = SOURCE @ next(v for k, v in weights.items() if k.endswith("key/kernel"))
    keep, fed, expected = KEEP[:, None], np.zeros((3, 6)), []
    keep[2] = True
    for t in range(4):
        x = np.concatenate([TARGET[:, t], fed], -1) if feeding else TARGET[:, t]
        state = numpy_gru(x, state, *cell)
        scores = np.where(keep[:, 0], (keys @ state[:, :, None])[:, :, 0], -np.inf)
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        found = exponentials / exponentials.sum(-1, keepdims=True)
        context = (found[:, None] @ SOURCE)[:, 0]
        joined = np.concatenate([context, state], -1)
        fed = np.tanh(joined @ weights["attention_output/kernel"])
        expected.append((fed, found))
    output, scores = decoder(
        *(TARGET, SOURCE, STATE),
        encoder_padding_mask=keep[:, 0],
        return_attention_scores=True,
    )
    assert_close(output, np.stack([fed for fed, _ in expected], 1))
    assert_close(scores, np.stack([found for _, found in expected], 1))


def test_masked_steps_leave_the_state_alone():
    decoder = filled(layers.RecurrentDecoder(6), TARGET)
    keep = np.array([[True, False, True, True]] * 3)
    outputs = array(decoder(TARGET, decoder_padding_mask=keep))
    assert not outputs[:, 1].any()
    assert_close(outputs[:, [0, 2, 3]], decoder(TARGET[:, [0, 2, 3]]))


@pytest.mark.every_backend
def test_dropout_falls_on_training_alone():
    attention = layers.AdditiveAttention()
    decoder = layers.RecurrentDecoder(6, attention=attention, dropout=0.5, seed=1)
    filled(decoder, TARGET, SOURCE, STATE)
    still = array(decoder(TARGET, SOURCE, STATE))
    assert_close(decoder(TARGET, SOURCE, STATE, training=False), still)
    draws = [array(decoder(TARGET, SOURCE, STATE, training=True)) for _ in range(2)]
    assert np.abs(draws[0] - still).max() > 1e-3
    assert np.abs(draws[0] - draws[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.RecurrentEncoder(5), "`units` must be even"),
        (lambda: layers.RecurrentEncoder(6, cell="rnn"), "`cell` must be one of"),
        (lambda: layers.RecurrentDecoder(6, cell="rnn"), "`cell` must be one of"),
        (lambda: layers.RecurrentDecoder(0), "`units` must be a positive int"),
        (
            lambda: layers.RecurrentDecoder(6, attention=keras.layers.Attention()),
            "must be an attention layer of keras_attn",
        ),
        (
            lambda: layers.RecurrentDecoder(6, attention="additive"),
            "must be an attention layer of keras_attn",
        ),
        (
            lambda: layers.RecurrentDecoder(
                6, attention=layers.MultiHeadSelfAttention(2)
            ),
            "from one sequence to another",
        ),
        (
            lambda: layers.RecurrentDecoder(
                6, attention=layers.AdditiveAttention(dropout=0.1)
            ),
            "inside a loop, where its dropout is not",
        ),
        (lambda: layers.RecurrentDecoder(6, bidirectional=True), "bidirectional"),
        (
            lambda: layers.RecurrentDecoder(6, attention=layers.AdditiveAttention())(
                TARGET
            ),
            "requires a sequence to attend to",
        ),
        (lambda: layers.RecurrentDecoder(6)(TARGET, SOURCE), "has no attention"),
        (
            lambda: layers.RecurrentDecoder(6)(TARGET, return_attention_scores=True),
            "has no attention whose weights",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_initial_state_comes_always_or_never():
    decoder = filled(layers.RecurrentDecoder(6), TARGET)
    with pytest.raises(ValueError, match="built without an initial state"):
        decoder(TARGET, None, ops.convert_to_tensor(STATE))
