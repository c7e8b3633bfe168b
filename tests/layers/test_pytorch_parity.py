"""Attention and both blocks against PyTorch's, with copied weights."""

import keras
import numpy as np
import pytest
from tensors import assert_close, fill_weights, lengths_mask, normal

from keras_attn import layers

torch = pytest.importorskip("torch")

BATCH, QUERIES, KEYS, WIDTH, HEADS, MIDDLE = 2, 5, 7, 15, 3, 11
QUERY_LENGTHS, KEY_LENGTHS = [5, 3], [7, 4]


def copy(parameter, weight):
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(weight)))


def copy_attention(theirs, ours):
    """Weights of our projections into theirs, whose matrices are (out, in)."""
    q, qb, k, kb, v, vb, o, ob = ours.get_weights()
    projections = [kernel.reshape(kernel.shape[0], -1).T for kernel in (q, k, v)]
    if theirs.in_proj_weight is not None:
        copy(theirs.in_proj_weight, np.concatenate(projections))
    else:
        copy(theirs.q_proj_weight, projections[0])
        copy(theirs.k_proj_weight, projections[1])
        copy(theirs.v_proj_weight, projections[2])
    copy(theirs.in_proj_bias, np.concatenate([b.ravel() for b in (qb, kb, vb)]))
    copy(theirs.out_proj.weight, o.reshape(-1, o.shape[-1]).T)
    copy(theirs.out_proj.bias, ob)


def copy_block(theirs, ours):
    copy_attention(theirs.self_attn, ours._self_attention)
    norms = [ours._attention_residual.norm, ours._feed_forward_residual.norm]
    if hasattr(theirs, "multihead_attn"):
        copy_attention(theirs.multihead_attn, ours._cross_attention)
        norms.insert(1, ours._cross_residual.norm)
    for i, norm in enumerate(norms, 1):
        scale, shift = norm.get_weights()
        copy(getattr(theirs, f"norm{i}").weight, scale)
        copy(getattr(theirs, f"norm{i}").bias, shift)
    w1, b1, w2, b2 = ours._feed_forward.get_weights()
    copy(theirs.linear1.weight, w1.T), copy(theirs.linear1.bias, b1)
    copy(theirs.linear2.weight, w2.T), copy(theirs.linear2.bias, b2)


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def future(length):
    """Their masks are true where attention is forbidden."""
    return tensor(np.triu(np.ones((length, length), bool), 1))


def detached(output):
    return output.detach().numpy()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_attention(padded, causal):
    ours = layers.MultiHeadAttention(HEADS)
    theirs = torch.nn.MultiheadAttention(
        WIDTH, HEADS, kdim=17, vdim=13, batch_first=True
    )
    query, value = normal(BATCH, QUERIES, WIDTH), normal(BATCH, KEYS, 13, seed=1)
    key = normal(BATCH, KEYS, 17, seed=2)
    ours.build(query.shape, value.shape, key.shape)
    fill_weights(ours)
    copy_attention(theirs, ours)
    keep = lengths_mask(KEY_LENGTHS, KEYS)
    forbidden = np.triu(np.ones((QUERIES, KEYS), bool), 1)
    expected, weights = theirs(
        *map(tensor, (query, key, value)),
        key_padding_mask=tensor(~keep) if padded else None,
        attn_mask=tensor(forbidden) if causal else None,
        average_attn_weights=False,
    )
    output, scores = ours(
        query,
        value,
        key,
        padding_mask=keep if padded else None,
        use_causal_mask=causal,
        return_attention_scores=True,
    )
    assert_close(output, detached(expected))
    assert_close(scores, detached(weights))


blocks = pytest.mark.parametrize(
    ("normalize_first", "activation"),
    [(False, "relu"), (True, "relu"), (False, "gelu"), (True, "gelu")],
)


def their_block(block_class, normalize_first, activation):
    # In training mode, without dropout: their inference has a path of its own.
    return block_class(
        WIDTH,
        HEADS,
        MIDDLE,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=normalize_first,
    ).train()


@blocks
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_block(normalize_first, activation, causal):
    ours = layers.TransformerEncoder(
        MIDDLE, HEADS, activation=activation, normalize_first=normalize_first
    )
    theirs = their_block(torch.nn.TransformerEncoderLayer, normalize_first, activation)
    x = normal(BATCH, QUERIES, WIDTH)
    ours.build(x.shape)
    copy_block(theirs, fill_weights(ours))
    keep = lengths_mask(QUERY_LENGTHS, QUERIES)
    past = np.broadcast_to(np.tri(QUERIES, dtype=bool), (BATCH, QUERIES, QUERIES))
    expected = theirs(
        tensor(x),
        src_key_padding_mask=tensor(~keep),
        src_mask=future(QUERIES) if causal else None,
    )
    found = ours(x, padding_mask=keep, attention_mask=past if causal else None)
    assert_close(found, detached(expected))


@blocks
def test_decoder_block(normalize_first, activation):
    ours = layers.TransformerDecoder(
        MIDDLE, HEADS, activation=activation, normalize_first=normalize_first
    )
    theirs = their_block(torch.nn.TransformerDecoderLayer, normalize_first, activation)
    x, context = normal(BATCH, QUERIES, WIDTH), normal(BATCH, KEYS, WIDTH, seed=1)
    ours.build(x.shape, context.shape)
    copy_block(theirs, fill_weights(ours))
    target, source = (
        lengths_mask(QUERY_LENGTHS, QUERIES),
        lengths_mask(KEY_LENGTHS, KEYS),
    )
    expected = theirs(
        tensor(x),
        tensor(context),
        tgt_mask=future(QUERIES),
        tgt_key_padding_mask=tensor(~target),
        memory_key_padding_mask=tensor(~source),
    )
    found = ours(x, context, decoder_padding_mask=target, encoder_padding_mask=source)
    assert_close(found, detached(expected))


def test_gradients_of_an_encoder_block():
    """The same step of gradient descent on both sides."""
    ours = layers.TransformerEncoder(MIDDLE, HEADS)
    theirs = their_block(torch.nn.TransformerEncoderLayer, False, "relu")
    x, y = normal(BATCH, QUERIES, WIDTH), normal(BATCH, QUERIES, WIDTH, seed=1)
    inputs = keras.Input((None, WIDTH))
    model = keras.Model(inputs, ours(inputs))
    copy_block(theirs, fill_weights(ours))
    model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=False)
    model.train_on_batch(x, y)
    ((theirs(tensor(x)) - tensor(y)) ** 2).mean().backward()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter -= 0.5 * parameter.grad
    assert_close(ours(x), detached(theirs(tensor(x))), 2e-5)
