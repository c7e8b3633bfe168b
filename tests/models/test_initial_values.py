"""The deviations of the models' initial values, see docs/training.md."""

import pytest
from tensors import array

from keras_attn import layers, models

DIM, DEPTH = 64, 3
SIZES = dict(num_layers=DEPTH, hidden_dim=DIM, intermediate_dim=DIM, num_heads=2)
MODELS = {
    "translator": lambda: models.transformer_translator(500, 400, **SIZES),
    "pre-norm translator": lambda: models.transformer_translator(
        500, 400, normalize_first=True, **SIZES
    ),
    "language model": lambda: models.causal_language_model(500, **SIZES),
    "post-norm language model": lambda: models.causal_language_model(
        500, normalize_first=False, **SIZES
    ),
    "vision": lambda: models.vision_transformer(8, 3, 4, **SIZES),
    "vision without biases": lambda: models.vision_transformer(
        8, 3, 4, qkv_bias=False, **SIZES
    ),
}
PRE_NORM = {*MODELS} - {"translator", "post-norm language model"}
QKV = ("query/kernel", "key/kernel", "value/kernel")
LAST = ("attention_output/kernel", "feed_forward/output/kernel")


@pytest.mark.parametrize("name", MODELS)
def test_blocks(name):
    found = {weight.path: array(weight).std() for weight in MODELS[name]().weights}
    in_blocks = {
        path: deviation
        for path, deviation in found.items()
        if path.startswith(("encoder_", "decoder_")) and path.endswith("kernel")
    }
    assert len(in_blocks) >= 6 * DEPTH
    has_cross_attention = any("cross_attention" in path for path in in_blocks)
    for path, deviation in in_blocks.items():
        gain = 1.0
        if path.endswith(QKV):
            gain = 2**-0.5
        elif path.endswith(LAST) and name in PRE_NORM:
            is_decoder = has_cross_attention and path.startswith("decoder")
            gain = ((3 if is_decoder else 2) * DEPTH) ** -0.5
        # Xavier uniform for a square matrix.
        assert deviation == pytest.approx(gain * DIM**-0.5, rel=0.05), path


def test_embeddings_of_a_translator():
    model = models.transformer_translator(500, 400, **SIZES)
    deviations = [
        array(weight).std() for weight in model.weights if "embeddings" in weight.name
    ]
    assert deviations == pytest.approx(3 * [0.5 * DIM**-0.5], rel=0.03)


def test_a_given_attention_layer_keeps_its_own():
    attention = layers.MultiHeadSelfAttention(2)
    model = models.causal_language_model(500, attention=attention, **SIZES)
    deviations = [array(w).std() for w in model.weights if w.path.endswith(QKV)]
    assert deviations == pytest.approx(len(deviations) * [DIM**-0.5], rel=0.05)
