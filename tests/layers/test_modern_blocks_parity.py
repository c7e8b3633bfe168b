"""Blocks put together from parts, against published architectures of `transformers`.

Small random models of theirs, their weights copied into ours: what comes out of the
last block, before the last normalization, must be equal.
"""

import operator

import keras
import numpy as np
import pytest
from tensors import array, assert_close, normal

from keras_attn import layers

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# The heads together are wider than the layer; six are no power of two.
BATCH, LENGTH, WIDTH, HEADS, KV_HEADS, HEAD_DIM, MIDDLE = 2, 13, 24, 6, 3, 14, 17
X = normal(BATCH, LENGTH, WIDTH)
KEEP = np.arange(LENGTH) < np.array([[LENGTH], [7]])
WINDOW = 5

MODERN = {
    "normalize_first": True,
    "normalization": "rms_norm",
    "layer_norm_epsilon": 1e-6,
    "use_bias": False,
}
PUBLISHED = {
    "vocab_size": 11,
    "hidden_size": WIDTH,
    "intermediate_size": MIDDLE,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "pad_token_id": 0,
    "attn_implementation": "eager",
}
# Layers of ours and modules of theirs. Most have taken over the names of Llama.
ATTENTION, THEIRS = "_self_attention", "self_attn"
LLAMA = {
    "_attention_residual.norm": "input_layernorm",
    f"{ATTENTION}._projections.query": f"{THEIRS}.q_proj",
    f"{ATTENTION}._projections.key": f"{THEIRS}.k_proj",
    f"{ATTENTION}._projections.value": f"{THEIRS}.v_proj",
    f"{ATTENTION}._projections.output": f"{THEIRS}.o_proj",
    "_feed_forward_residual.norm": "post_attention_layernorm",
    "_feed_forward._gate_dense": "mlp.gate_proj",
    "_feed_forward._intermediate_dense": "mlp.up_proj",
    "_feed_forward._output_dense": "mlp.down_proj",
}


def gelu_by_tanh(x):
    return keras.activations.gelu(x, approximate=True)


def randomized(model):
    """Random weights, biases and norms included; no last norm, and in evaluation."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(0.3 * noise)
    return model.eval()


def fill(ours, *values):
    """Values of theirs, matrices as (out, in), into the weights of a layer of ours."""
    assert len(ours.weights) == len(values)
    for weight, value in zip(ours.weights, values):
        value = value.detach().numpy()
        weight.assign((value.T if value.ndim > 1 else value).reshape(weight.shape))


def copy_block(ours, theirs, names, norm_offset=0.0):
    """Weights of a block of theirs into one of ours, by pairs of names."""
    total = 0
    for own, name in names.items():
        layer = operator.attrgetter(own)(ours)
        values = list(operator.attrgetter(name)(theirs).parameters())
        if "norm" in own:
            values = [values[0] + norm_offset, *values[1:]]
        fill(layer, *values)
        total += len(layer.weights)
    return total


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def theirs_on(model):
    """What comes out of their model, whose last norm has been taken away."""
    found = model(inputs_embeds=tensor(X), attention_mask=tensor(KEEP.astype(int)))
    return found.last_hidden_state.detach().numpy()


def ours_on(blocks):
    x = X
    for block in blocks:
        x = block(x, decoder_padding_mask=KEEP)
    return array(x)


def gated(activation):
    return layers.FeedForward(MIDDLE, activation, use_bias=False, gated=True)


def decoders(options, *attentions, middle=MIDDLE, activation=None):
    """Blocks; with an `activation`, each has a gated network."""
    blocks = []
    for attention in attentions:
        parts = {} if activation is None else {"feed_forward": gated(activation)}
        blocks.append(
            layers.TransformerDecoder(
                middle, HEADS, attention=attention, **parts, **options
            )
        )
    for block in blocks:
        block.build(X.shape)
    return blocks


def self_attention(**options):
    options = {"key_dim": HEAD_DIM, "use_bias": False, **options}
    return layers.MultiHeadSelfAttention(HEADS, **options)


def grouped(**options):
    options = {"position": layers.RotaryPositionEmbedding(), **options}
    return self_attention(num_key_value_heads=KV_HEADS, **options)


def assert_equal_to(model, blocks, names=LLAMA, norm_offset=0.0):
    """A model of theirs against our blocks, after its weights are copied into them."""
    randomized(model).norm = torch.nn.Identity()
    for block, layer in zip(blocks, model.layers, strict=True):
        copied = copy_block(block, layer, names, norm_offset)
        assert copied == len(block.weights)
    assert_close(ours_on(blocks)[KEEP], theirs_on(model)[KEEP])


def test_llama():
    """Rotary positions, grouped heads, RMS norm, SwiGLU."""
    model = transformers.LlamaModel(transformers.LlamaConfig(**PUBLISHED))
    assert_equal_to(model, decoders(MODERN, grouped(), grouped(), activation="silu"))


@pytest.mark.parametrize("window", [1, WINDOW])
def test_mistral(window):
    """A sliding window, in which a token itself is counted."""
    config = transformers.MistralConfig(**PUBLISHED, sliding_window=window)
    blocks = decoders(
        MODERN, *(grouped(sliding_window=window) for _ in "ab"), activation="silu"
    )
    assert_equal_to(transformers.MistralModel(config), blocks)


def test_qwen2():
    """Biases of queries, keys and values, but not of the output; another wavelength."""
    config = transformers.Qwen2Config(
        **PUBLISHED, rope_parameters={"rope_type": "default", "rope_theta": 1e6}
    )
    options = {
        "position": layers.RotaryPositionEmbedding(1e6),
        "use_bias": True,
        "use_output_bias": False,
    }
    attentions = (grouped(**options) for _ in "ab")
    assert_equal_to(
        transformers.Qwen2Model(config),
        decoders(MODERN, *attentions, activation="silu"),
    )


def test_qwen3():
    """Queries and keys normalized head by head, before they are rotated."""
    model = transformers.Qwen3Model(transformers.Qwen3Config(**PUBLISHED))
    names = {
        **LLAMA,
        f"{ATTENTION}._projections.query_norm": f"{THEIRS}.q_norm",
        f"{ATTENTION}._projections.key_norm": f"{THEIRS}.k_norm",
    }
    attentions = (grouped(qk_norm="rms_norm") for _ in "ab")
    assert_equal_to(model, decoders(MODERN, *attentions, activation="silu"), names)


def test_gemma2():
    """A soft cap, a scale, norms on both sides of a branch, every other layer local."""
    config = transformers.Gemma2Config(
        **PUBLISHED,
        sliding_window=WINDOW,
        query_pre_attn_scalar=7,
        attn_logit_softcapping=0.8,  # so low that it matters here
    )
    model = transformers.Gemma2Model(config)
    assert config.layer_types == ["sliding_attention", "full_attention"]
    options = {**MODERN, "residual": layers.Residual(sandwich_norm=True)}
    attentions = (
        grouped(scale=7**-0.5, logit_soft_cap=0.8, sliding_window=window)
        for window in (WINDOW, None)
    )
    names = {
        **LLAMA,
        "_attention_residual.output_norm": "post_attention_layernorm",
        "_feed_forward_residual.norm": "pre_feedforward_layernorm",
        "_feed_forward_residual.output_norm": "post_feedforward_layernorm",
    }
    # Their norms multiply by one more than their weights.
    blocks = decoders(options, *attentions, activation=gelu_by_tanh)
    assert_equal_to(model, blocks, names, norm_offset=1.0)


def test_gpt_oss():
    """Learned sinks, YaRN, every other layer local; of their experts there is one."""
    yarn = {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 16,
        "truncate": False,
    }
    config = transformers.GptOssConfig(
        **PUBLISHED,
        sliding_window=WINDOW,
        num_local_experts=1,
        num_experts_per_tok=1,
        rms_norm_eps=1e-6,
        rope_parameters={**yarn, "rope_theta": 150000.0},
        max_position_embeddings=16 * 32,
        experts_implementation="eager",  # the other ones take no odd widths
    )
    model = randomized(transformers.GptOssModel(config))
    model.norm = torch.nn.Identity()
    options = {**MODERN}
    names = {own: name for own, name in LLAMA.items() if "mlp" not in name}
    blocks = []
    for window, theirs in zip((WINDOW, None), model.layers, strict=True):
        attention = grouped(
            position=layers.RotaryPositionEmbedding(150000, scaling=yarn),
            use_bias=True,
            use_sinks=True,
            sliding_window=window,
        )
        network = layers.FeedForward(
            MIDDLE, gated=True, activation=lambda x: x * keras.ops.sigmoid(1.702 * x)
        )
        options["feed_forward"] = network
        blocks += decoders(options, attention)
        copied = copy_block(blocks[-1], theirs, names)
        attention.sinks.assign(theirs.self_attn.sinks.detach().numpy())
        experts = theirs.mlp.experts
        kernel, bias = experts.gate_up_proj[0], experts.gate_up_proj_bias[0]
        fill(network._gate_dense, kernel[:, ::2].T, bias[::2])
        # What they multiply the gate by is one more.
        fill(network._intermediate_dense, kernel[:, 1::2].T, bias[1::2] + 1)
        fill(network._output_dense, experts.down_proj[0].T, experts.down_proj_bias[0])
        assert copied + 1 + len(network.weights) == len(blocks[-1].weights)
    assert_close(ours_on(blocks)[KEEP], theirs_on(model)[KEEP])


# Those of 2021 to 2023: no groups, and heads that are a part of the width each.
PLAIN = {"vocab_size": 11, "pad_token_id": 0, "attn_implementation": "eager"}


def alibi_decoders(use_bias, activation):
    options = {"normalize_first": True, "use_bias": use_bias, "activation": activation}
    attentions = (
        layers.MultiHeadSelfAttention(
            HEADS, position=layers.AlibiPositionBias(), use_bias=use_bias
        )
        for _ in "ab"
    )
    return decoders(options, *attentions, middle=4 * WIDTH)


def fill_fused(attention, *values):
    """Projections of theirs to queries, keys and values, `(3, ...)`, into ours."""
    dense = (
        attention._projections.query,
        attention._projections.key,
        attention._projections.value,
    )
    for i, layer in enumerate(dense):
        fill(layer, *(value[i] for value in values))
    return 3 * len(values)


def test_mpt():
    """ALiBi for a number of heads that is no power of two; no biases and no betas."""
    config = transformers.MptConfig(
        **PLAIN, d_model=WIDTH, n_heads=HEADS, n_layers=2, max_seq_len=29
    )
    model = randomized(transformers.MptModel(config))
    model.norm_f = torch.nn.Identity()
    blocks = alibi_decoders(False, "gelu")
    names = {
        "_attention_residual.norm": "norm_1",
        f"{ATTENTION}._projections.output": "attn.out_proj",
        "_feed_forward_residual.norm": "norm_2",
        "_feed_forward._intermediate_dense": "ffn.up_proj",
        "_feed_forward._output_dense": "ffn.down_proj",
    }
    for block, layer in zip(blocks, model.blocks, strict=True):
        fused = layer.attn.Wqkv.weight.reshape(3, WIDTH, WIDTH)
        copied = fill_fused(block._self_attention, fused)
        copied += copy_block(block, layer, names)
        assert copied == len(block.weights)
    assert_close(ours_on(blocks)[KEEP], theirs_on(model)[KEEP])


def test_bloom():
    """ALiBi again, with biases everywhere."""
    config = transformers.BloomConfig(
        **PLAIN, hidden_size=WIDTH, n_head=HEADS, n_layer=2
    )
    model = randomized(transformers.BloomModel(config))
    model.ln_f = model.word_embeddings_layernorm = torch.nn.Identity()
    blocks = alibi_decoders(True, gelu_by_tanh)
    names = {
        "_attention_residual.norm": "input_layernorm",
        f"{ATTENTION}._projections.output": "self_attention.dense",
        "_feed_forward_residual.norm": "post_attention_layernorm",
        "_feed_forward._intermediate_dense": "mlp.dense_h_to_4h",
        "_feed_forward._output_dense": "mlp.dense_4h_to_h",
    }
    for block, layer in zip(blocks, model.h, strict=True):
        fused = layer.self_attention.query_key_value
        by_head = HEADS, 3, WIDTH // HEADS
        weight = fused.weight.reshape(*by_head, WIDTH).swapaxes(0, 1)
        bias = fused.bias.reshape(by_head).swapaxes(0, 1).reshape(3, WIDTH)
        copied = fill_fused(
            block._self_attention, weight.reshape(3, WIDTH, WIDTH), bias
        )
        copied += copy_block(block, layer, names)
        assert copied == len(block.weights)
    assert_close(ours_on(blocks)[KEEP], theirs_on(model)[KEEP])


T5 = {
    "_attention_residual.norm": "layer.0.layer_norm",
    f"{ATTENTION}._projections.query": "layer.0.SelfAttention.q",
    f"{ATTENTION}._projections.key": "layer.0.SelfAttention.k",
    f"{ATTENTION}._projections.value": "layer.0.SelfAttention.v",
    f"{ATTENTION}._projections.output": "layer.0.SelfAttention.o",
}
CROSS = {
    own.replace("self_", "cross_").replace(
        "_attention_res", "_cross_res"
    ): name.replace("0.Self", "1.EncDec").replace("0", "1")
    for own, name in T5.items()
}


def t5_feed_forward(place):
    name = f"layer.{place}"
    return {
        "_feed_forward_residual.norm": f"{name}.layer_norm",
        "_feed_forward._intermediate_dense": f"{name}.DenseReluDense.wi",
        "_feed_forward._output_dense": f"{name}.DenseReluDense.wo",
    }


def test_t5():
    """Bucketed distances, shared by the layers of each side; scores not scaled."""
    config = transformers.T5Config(
        **PLAIN,
        d_model=WIDTH,
        d_kv=HEAD_DIM,
        d_ff=MIDDLE,
        num_layers=2,
        num_heads=HEADS,
        # So few that distances of this length fall in all kinds of them.
        relative_attention_num_buckets=8,
        relative_attention_max_distance=9,
        feed_forward_proj="relu",
    )
    model = randomized(transformers.T5Model(config))
    for name, parameter in model.named_parameters():
        if name.endswith(".q.weight"):  # which are so much smaller, as if scaled
            parameter.data *= HEAD_DIM**-0.5
    options = {**MODERN, "activation": "relu"}
    sides = []
    for block_class, stack in (
        (layers.TransformerEncoder, model.encoder),
        (layers.TransformerDecoder, model.decoder),
    ):
        is_decoder = block_class is layers.TransformerDecoder
        shared = layers.RelativePositionBias(
            num_buckets=8, max_distance=9, bidirectional=not is_decoder
        )
        blocks = []
        for theirs in stack.block:
            attention = self_attention(scale=1.0, position=shared)
            more = {}
            if is_decoder:
                more["cross_attention"] = layers.CrossAttention(
                    HEADS, HEAD_DIM, scale=1.0, use_bias=False
                )
            block = block_class(MIDDLE, HEADS, attention=attention, **options, **more)
            block.build(*[X.shape] * (1 + is_decoder))
            names = {**T5, **t5_feed_forward(1 + is_decoder)}
            names |= CROSS if is_decoder else {}
            assert copy_block(block, theirs, names) + 1 == len(block.weights)
            blocks.append(block)
        table = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        shared.table.assign(table.detach().numpy())
        stack.final_layer_norm = torch.nn.Identity()
        sides.append(blocks)
    target = normal(BATCH, LENGTH - 2, WIDTH, seed=1)
    theirs = model(
        inputs_embeds=tensor(X),
        attention_mask=tensor(KEEP.astype(int)),
        decoder_inputs_embeds=tensor(target),
    )
    encoder, decoder = sides
    encoded = X
    for block in encoder:
        encoded = block(encoded, padding_mask=KEEP)
    expected = theirs.encoder_last_hidden_state.detach().numpy()
    assert_close(array(encoded)[KEEP], expected[KEEP])
    found = target
    for block in decoder:
        found = block(found, encoded, encoder_padding_mask=KEEP)
    assert_close(found, theirs.last_hidden_state.detach().numpy())
