"""Both blocks and both position layers against KerasHub's, weights copied."""

import inspect

import keras
import numpy as np
import pytest
from tensors import array, assert_close, fill_weights, lengths_mask, normal

from keras_attn import layers

hub = pytest.importorskip("keras_hub").layers

BATCH, LENGTH, TOTAL, WIDTH, HEADS, MIDDLE = 2, 5, 7, 15, 3, 11
X, CONTEXT = normal(BATCH, LENGTH, WIDTH), normal(BATCH, TOTAL, WIDTH, seed=1)
KEEP, CONTEXT_KEEP = lengths_mask([5, 3], LENGTH), lengths_mask([7, 4], TOTAL)
rng = np.random.default_rng(2)
DENSE = rng.random((BATCH, LENGTH, LENGTH)) < 0.5
DENSE |= np.eye(LENGTH, dtype=bool)
DENSE[..., 0] = True  # Theirs means something else where nothing is left to see.
CONTEXT_DENSE = rng.random((BATCH, LENGTH, TOTAL)) < 0.5
CONTEXT_DENSE[..., 0] = True

ENCODER_MASKS = {
    "none": {},
    "padding": {"padding_mask": KEEP},
    "dense": {"attention_mask": DENSE},
    "both": {"padding_mask": KEEP, "attention_mask": DENSE},
}
DECODER_MASKS = {
    "none": {},
    "not causal": {"use_causal_mask": False},
    "padding": {"decoder_padding_mask": KEEP},
    "dense": {"decoder_attention_mask": DENSE},
    "all": {"decoder_padding_mask": KEEP, "decoder_attention_mask": DENSE},
}
CONTEXT_MASKS = {
    "none": {},
    "padding": {"encoder_padding_mask": CONTEXT_KEEP},
    "dense": {"encoder_attention_mask": CONTEXT_DENSE},
    "all": {
        "encoder_padding_mask": CONTEXT_KEEP,
        "encoder_attention_mask": CONTEXT_DENSE,
        "decoder_padding_mask": KEEP,
        "decoder_attention_mask": DENSE,
    },
}
blocks = pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"normalize_first": True},
        {"activation": "gelu", "layer_norm_epsilon": 1e-3, "dropout": 0.2},
    ],
)


def pair(name, shapes, **arguments):
    arguments = {"intermediate_dim": MIDDLE, "num_heads": HEADS, **arguments}
    theirs, ours = (getattr(house, name)(**arguments) for house in (hub, layers))
    for layer in (theirs, ours):
        layer.build(*shapes)
    fill_weights(theirs)
    ours.set_weights(theirs.get_weights())
    return ours, theirs


@blocks
@pytest.mark.parametrize("masks", ENCODER_MASKS)
def test_encoder(masks, arguments):
    ours, theirs = pair("TransformerEncoder", [X.shape], **arguments)
    masks = ENCODER_MASKS[masks]
    expected, weights = theirs(X, **masks, return_attention_scores=True)
    output, scores = ours(X, **masks, return_attention_scores=True)
    assert_close(output, expected)
    assert_close(scores, weights)
    assert_close(ours(X, **masks), theirs(X, **masks))


@blocks
@pytest.mark.parametrize("masks", DECODER_MASKS)
def test_decoder(masks, arguments):
    ours, theirs = pair("TransformerDecoder", [X.shape], **arguments)
    masks = DECODER_MASKS[masks]
    assert_close(ours(X, **masks), theirs(X, **masks))


@blocks
@pytest.mark.parametrize("masks", CONTEXT_MASKS)
def test_decoder_with_an_encoder_sequence(masks, arguments):
    shapes = [X.shape, CONTEXT.shape]
    ours, theirs = pair("TransformerDecoder", shapes, **arguments)
    masks = CONTEXT_MASKS[masks]
    assert_close(ours(X, CONTEXT, **masks), theirs(X, CONTEXT, **masks))


# Theirs warns of its own projections.
@pytest.mark.filterwarnings("ignore:[\\s\\S]*does not support masking")
@pytest.mark.parametrize("normalize_first", [False, True])
def test_implicit_masks(normalize_first):
    """A Functional model whose masks come from the embeddings, in both houses."""
    ids = {
        "source": np.where(CONTEXT_KEEP, 3, 0).astype("int32"),
        "target": np.where(KEEP, 5, 0).astype("int32"),
    }
    ids["source"][0] = np.arange(1, 8)

    def model(house):
        inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ids}
        embedding = keras.layers.Embedding(9, WIDTH, mask_zero=True)
        embedded = {name: embedding(tensor) for name, tensor in inputs.items()}
        arguments = (MIDDLE, HEADS)
        options = {"normalize_first": normalize_first}
        encode = house.TransformerEncoder(*arguments, **options)
        decode = house.TransformerDecoder(*arguments, **options)
        encoded = encode(encode(embedded["source"]))
        return keras.Model(inputs, decode(decode(embedded["target"], encoded), encoded))

    ours, theirs = model(layers), model(hub)
    fill_weights(theirs)
    ours.set_weights(theirs.get_weights())
    expected, found = array(theirs(ids)), array(ours(ids))
    assert_close(found[KEEP], expected[KEEP])


@pytest.mark.parametrize("name", ["TransformerEncoder", "TransformerDecoder"])
def test_same_arguments_in_the_same_order_with_the_same_defaults(name):
    ours, theirs = getattr(layers, name), getattr(hub, name)

    def positional(function):
        return [
            (p.name, p.default)
            for p in inspect.signature(function).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD and "cache" not in p.name
        ]

    def differs(found, expected):
        return [
            pair
            for pair in zip(found, expected)
            if pair[0][0] != pair[1][0] or pair[0][1] not in (pair[1][1], None)
        ]

    assert positional(ours)[: len(positional(theirs))] == [
        (name, 1e-5 if name == "layer_norm_epsilon" else default)
        for name, default in positional(theirs)
    ]
    found, expected = positional(ours.call), positional(theirs.call)
    assert differs(found, expected) == []
    assert len(found) >= len(expected)


def test_sines():
    x = normal(BATCH, LENGTH, 6)
    ours, theirs = layers.SinusoidalPositionEmbedding(), hub.SinePositionEncoding()
    for start in (0, 3):
        expected = x + array(theirs(x, start_index=start))
        assert_close(ours(x, start_index=start), expected)


def test_learned_positions():
    ours, theirs = layers.PositionEmbedding(11), hub.PositionEmbedding(11)
    for layer in (ours, theirs):
        layer.build(X.shape)
    ours.set_weights(theirs.get_weights())
    for start in (0, 3):
        expected = X + array(theirs(X, start_index=start))
        assert_close(ours(X, start_index=start), expected, 1e-6)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_token_embedding(tie_weights):
    ours = layers.TokenEmbedding(11, 5, tie_weights=tie_weights)
    theirs = hub.ReversibleEmbedding(11, 5, tie_weights=tie_weights)
    for layer in (ours, theirs):
        layer.build()
    ours.set_weights(theirs.get_weights())
    ids = np.arange(6).reshape(2, 3)
    assert_close(ours(ids), theirs(ids), 1e-6)
    x = normal(2, 3, 5)
    assert_close(ours(x, reverse=True), theirs(x, reverse=True))
