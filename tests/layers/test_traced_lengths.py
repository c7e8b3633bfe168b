"""Graphs that PyTorch traces with a sample of one position, used for more of them.

An export to ONNX is such a graph: branches on a length of 1 hold for all lengths.
"""

import keras
import numpy as np
import pytest
from tensors import array, fill_weights

from keras_attn import layers

WIDTH, HEADS = 8, 2


def self_attention(inputs, use_causal_mask=False, **options):
    layer = layers.MultiHeadSelfAttention(HEADS, **options)
    return layer(inputs, use_causal_mask=use_causal_mask)


CALLS = {
    "additive": lambda x: layers.AdditiveAttention(5)(x, x),
    "dot product": lambda x: layers.DotProductAttention()(x, x),
    "self-attention": self_attention,
    "causal": lambda x: self_attention(x, use_causal_mask=True),
    "grouped": lambda x: self_attention(
        x, num_key_value_heads=1, use_gate=True, attention_kernel="full"
    ),
    "window": lambda x: self_attention(
        x, use_causal_mask=True, sliding_window=3, attention_kernel="full"
    ),
    "rotary": lambda x: self_attention(x, position=layers.RotaryPositionEmbedding()),
    "alibi": lambda x: self_attention(x, position=layers.AlibiPositionBias()),
    "linear": layers.LinearSelfAttention(HEADS),
    "encoder": layers.TransformerEncoder(6, HEADS),
    "decoder": layers.TransformerDecoder(6, HEADS),
}


@pytest.mark.on_pytorch
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="traces with PyTorch")
@pytest.mark.filterwarnings("ignore")  # PyTorch warns of each branch that it records.
@pytest.mark.parametrize("name", CALLS)
def test_more_positions_than_in_the_traced_sample(name):
    import torch

    inputs = keras.Input((None, WIDTH))
    model = fill_weights(keras.Model(inputs, CALLS[name](inputs)))
    x = torch.tensor(
        np.random.default_rng(0).normal(size=(3, 7, WIDTH)).astype("float32")
    )
    expected = array(model(x))
    traced = torch.jit.trace(model.eval(), (x[:1, :1],), check_trace=False)
    np.testing.assert_allclose(array(traced(x)), expected, atol=1e-5)
