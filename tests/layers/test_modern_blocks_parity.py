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

# None divides another, and the heads together are not as wide as the layer.
BATCH, LENGTH, WIDTH, HEADS, KV_HEADS, HEAD_DIM, MIDDLE = 2, 13, 20, 6, 3, 14, 17
X = normal(BATCH, LENGTH, WIDTH)
KEEP = np.arange(LENGTH) < np.array([[LENGTH], [7]])
WINDOW = 5

MODERN = {
    "normalize_first": True,
    "normalization": "rms_norm",
    "layer_norm_epsilon": 1e-6,
    "use_bias": False,
    "gated": True,
    "activation": "silu",
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
ATTENTION, THEIRS = "_self_attention_layer", "self_attn"
LLAMA = {
    "_self_attention_layer_norm": "input_layernorm",
    f"{ATTENTION}._query_dense": f"{THEIRS}.q_proj",
    f"{ATTENTION}._key_dense": f"{THEIRS}.k_proj",
    f"{ATTENTION}._value_dense": f"{THEIRS}.v_proj",
    f"{ATTENTION}._output_dense": f"{THEIRS}.o_proj",
    "_feedforward_layer_norm": "post_attention_layernorm",
    "_feedforward._gate_dense": "mlp.gate_proj",
    "_feedforward._intermediate_dense": "mlp.up_proj",
    "_feedforward._output_dense": "mlp.down_proj",
}


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


def outputs(blocks, x=X, keep=KEEP, *more, **arguments):
    for block in blocks:
        x = block(x, *more, **{_mask(block): keep}, **arguments)
    return array(x)


def _mask(block):
    is_decoder = isinstance(block, layers.TransformerDecoder)
    return "decoder_padding_mask" if is_decoder else "padding_mask"


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def theirs_on(model, **arguments):
    found = model(
        inputs_embeds=tensor(X), attention_mask=tensor(KEEP.astype(int)), **arguments
    )
    return found.last_hidden_state.detach().numpy()


def decoders(
    options, *attentions, middle=MIDDLE, block_class=layers.TransformerDecoder
):
    blocks = [
        block_class(middle, HEADS, attention=attention, **options)
        for attention in attentions
    ]
    for block in blocks:
        block.build(X.shape)
    return blocks


def self_attention(**options):
    options = {"key_dim": HEAD_DIM, "use_bias": False, **options}
    return layers.MultiHeadSelfAttention(HEADS, **options)


def grouped(**options):
    options = {"position": layers.RotaryPositionEmbedding(), **options}
    return self_attention(num_kv_heads=KV_HEADS, **options)


def assert_equal_to(model, blocks, names=LLAMA, norm_offset=0.0):
    """Their model without its last norm, against our blocks with its weights."""
    randomized(model).norm = torch.nn.Identity()
    for block, layer in zip(blocks, model.layers, strict=True):
        copied = copy_block(block, layer, names, norm_offset)
        copied += block._self_attention_layer.use_sinks
        assert copied == len(block.weights)
    expected = theirs_on(model)
    found = outputs(blocks)
    assert_close(found[KEEP], expected[KEEP])


def test_llama():
    """Rotary positions, grouped heads, RMS norm, SwiGLU."""
    model = transformers.LlamaModel(transformers.LlamaConfig(**PUBLISHED))
    assert_equal_to(model, decoders(MODERN, grouped(), grouped()))


@pytest.mark.parametrize("window", [1, WINDOW])
def test_mistral(window):
    """A sliding window, in which a token itself is counted."""
    config = transformers.MistralConfig(**PUBLISHED, sliding_window=window)
    blocks = decoders(MODERN, *(grouped(window=window) for _ in "ab"))
    assert_equal_to(transformers.MistralModel(config), blocks)


def test_qwen2():
    """Biases of queries, keys and values, but not of the output; another wavelength."""
    config = {**PUBLISHED, "hidden_size": HEADS * HEAD_DIM}
    del config["head_dim"]  # it has no heads of a width of their own
    rotary = {"rope_type": "default", "rope_theta": 1e6}
    config = transformers.Qwen2Config(**config, rope_parameters=rotary)
    model = transformers.Qwen2Model(config)
    attentions = [
        grouped(
            position=layers.RotaryPositionEmbedding(1e6),
            use_bias=True,
            use_output_bias=False,
        )
        for _ in "ab"
    ]
    x = normal(BATCH, LENGTH, HEADS * HEAD_DIM)
    blocks = [
        layers.TransformerDecoder(MIDDLE, HEADS, attention=attention, **MODERN)
        for attention in attentions
    ]
    randomized(model).norm = torch.nn.Identity()
    for block, layer in zip(blocks, model.layers):
        block.build(x.shape)
        assert copy_block(block, layer, LLAMA) == len(block.weights)
    expected = model(inputs_embeds=tensor(x)).last_hidden_state
    assert_close(outputs(blocks, x, None), expected.detach().numpy())


def test_qwen3():
    """Queries and keys normalized head by head, before they are rotated."""
    model = transformers.Qwen3Model(transformers.Qwen3Config(**PUBLISHED))
    names = {
        **LLAMA,
        f"{ATTENTION}._query_norm": f"{THEIRS}.q_norm",
        f"{ATTENTION}._key_norm": f"{THEIRS}.k_norm",
    }
    attentions = (grouped(query_key_normalization="rms_norm") for _ in "ab")
    assert_equal_to(model, decoders(MODERN, *attentions), names)


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
    options = {**MODERN, "sandwich_norm": True}
    options["activation"] = lambda x: keras.activations.gelu(x, approximate=True)
    attentions = (
        grouped(scale=7**-0.5, soft_cap=0.8, window=window) for window in (WINDOW, None)
    )
    names = {
        **LLAMA,
        "_self_attention_output_norm": "post_attention_layernorm",
        "_feedforward_layer_norm": "pre_feedforward_layernorm",
        "_feedforward_output_norm": "post_feedforward_layernorm",
    }
    # Their norms multiply by one more than their weights.
    assert_equal_to(model, decoders(options, *attentions), names, norm_offset=1.0)


def test_gpt_oss():
    """Learned sinks, YaRN, one layer of two local; of their experts there is one."""
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
    )
    model = transformers.GptOssModel(config)
    options = {**MODERN, "gated": False}
    attentions = [
        grouped(
            position=layers.RotaryPositionEmbedding(150000, scaling=yarn),
            use_bias=True,
            use_sinks=True,
            window=window,
        )
        for window in (WINDOW, None)
    ]
    blocks = [
        layers.TransformerDecoder(
            MIDDLE,
            HEADS,
            attention=attention,
            feed_forward=layers.FeedForward(
                MIDDLE,
                gated=True,
                activation=lambda x: x * keras.ops.sigmoid(1.702 * x),
            ),
            **options,
        )
        for attention in attentions
    ]
    randomized(model)
    names = {own: name for own, name in LLAMA.items() if "_dense" not in own}
    names |= {own: name for own, name in LLAMA.items() if THEIRS in name}
    for block, layer in zip(blocks, model.layers, strict=True):
        block.build(X.shape)
        block._self_attention_layer.sinks.assign(layer.self_attn.sinks.detach().numpy())
        experts, ours = layer.mlp.experts, block._feedforward
        kernel, bias = experts.gate_up_proj[0], experts.gate_up_proj_bias[0]
        fill(ours._gate_dense, kernel[:, ::2].T, bias[::2])
        # What the gate falls on is one more there.
        fill(ours._intermediate_dense, kernel[:, 1::2].T, bias[1::2] + 1)
        fill(ours._output_dense, experts.down_proj[0].T, experts.down_proj_bias[0])
    blocks_of_theirs = model.layers
    model.norm = torch.nn.Identity()
    for block, layer in zip(blocks, blocks_of_theirs):
        copied = copy_block(block, layer, names) + 1 + len(block._feedforward.weights)
        assert copied == len(block.weights)
    assert_close(outputs(blocks)[KEEP], theirs_on(model)[KEEP])


# Without groups and with heads that share the width: those of 2021 and 2023.
PLAIN = {"vocab_size": 11, "pad_token_id": 0, "attn_implementation": "eager"}
OLD_WIDTH = 18  # six heads: no power of two


@pytest.fixture
def old_x():
    return normal(BATCH, LENGTH, OLD_WIDTH)


def alibi_blocks(x, **options):
    blocks = []
    for _ in "ab":
        attention = layers.MultiHeadSelfAttention(
            HEADS,
            position=layers.AlibiPositionBias(),
            use_bias=options.get("use_bias", True),
        )
        blocks.append(
            layers.TransformerDecoder(
                4 * OLD_WIDTH,
                HEADS,
                attention=attention,
                normalize_first=True,
                **options,
            )
        )
        blocks[-1].build(x.shape)
    return blocks


def fill_fused(attention, query_key_value):
    """Three projections of theirs, on the first axis, into ours."""
    dense = attention._query_dense, attention._key_dense, attention._value_dense
    for i, layer in enumerate(dense):
        fill(layer, *(values[i] for values in query_key_value))


def run_both(model, blocks, x):
    expected = (
        model(inputs_embeds=tensor(x), attention_mask=tensor(KEEP.astype(int)))
        .last_hidden_state.detach()
        .numpy()
    )
    assert_close(outputs(blocks, x)[KEEP], expected[KEEP])


def test_mpt(old_x):
    """ALiBi for a number of heads that is no power of two; no biases and no betas."""
    config = transformers.MptConfig(
        **PLAIN, d_model=OLD_WIDTH, n_heads=HEADS, n_layers=2, max_seq_len=29
    )
    model = randomized(transformers.MptModel(config))
    model.norm_f = torch.nn.Identity()
    blocks = alibi_blocks(old_x, use_bias=False, activation="gelu")
    names = {
        "_self_attention_layer_norm": "norm_1",
        f"{ATTENTION}._output_dense": "attn.out_proj",
        "_feedforward_layer_norm": "norm_2",
        "_feedforward._intermediate_dense": "ffn.up_proj",
        "_feedforward._output_dense": "ffn.down_proj",
    }
    for block, layer in zip(blocks, model.blocks):
        fused = layer.attn.Wqkv.weight.reshape(3, OLD_WIDTH, OLD_WIDTH)
        fill_fused(block._self_attention_layer, [fused])
        assert copy_block(block, layer, names) + 3 == len(block.weights)
    run_both(model, blocks, old_x)


def test_bloom(old_x):
    """ALiBi again, with biases everywhere."""
    config = transformers.BloomConfig(
        **PLAIN, hidden_size=OLD_WIDTH, n_head=HEADS, n_layer=2
    )
    model = randomized(transformers.BloomModel(config))
    model.ln_f = model.word_embeddings_layernorm = torch.nn.Identity()
    blocks = alibi_blocks(
        old_x, activation=lambda x: keras.activations.gelu(x, approximate=True)
    )
    names = {
        "_self_attention_layer_norm": "input_layernorm",
        f"{ATTENTION}._output_dense": "self_attention.dense",
        "_feedforward_layer_norm": "post_attention_layernorm",
        "_feedforward._intermediate_dense": "mlp.dense_h_to_4h",
        "_feedforward._output_dense": "mlp.dense_4h_to_h",
    }
    for block, layer in zip(blocks, model.h):
        by_head = (
            values.reshape(HEADS, 3, OLD_WIDTH // HEADS, -1).swapaxes(0, 1)
            for values in layer.self_attention.query_key_value.parameters()
        )
        weight, bias = (v.reshape(3, OLD_WIDTH, -1) for v in by_head)
        fill_fused(block._self_attention_layer, [weight, bias[..., 0]])
        assert copy_block(block, layer, names) + 6 == len(block.weights)
    run_both(model, blocks, old_x)


T5 = {
    "_self_attention_layer_norm": "layer.0.layer_norm",
    f"{ATTENTION}._query_dense": "layer.0.SelfAttention.q",
    f"{ATTENTION}._key_dense": "layer.0.SelfAttention.k",
    f"{ATTENTION}._value_dense": "layer.0.SelfAttention.v",
    f"{ATTENTION}._output_dense": "layer.0.SelfAttention.o",
}
CROSS = {
    own.replace("self_", "cross_"): name.replace("0.Self", "1.EncDec").replace("0", "1")
    for own, name in T5.items()
}


def t5_feed_forward(place):
    name = f"layer.{place}"
    return {
        "_feedforward_layer_norm": f"{name}.layer_norm",
        "_feedforward._intermediate_dense": f"{name}.DenseReluDense.wi",
        "_feedforward._output_dense": f"{name}.DenseReluDense.wo",
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
    options = {**MODERN, "gated": False, "activation": "relu"}
    sides = []
    for block_class, stack in (
        (layers.TransformerEncoder, model.encoder),
        (layers.TransformerDecoder, model.decoder),
    ):
        is_decoder = block_class is layers.TransformerDecoder
        shared = layers.RelativePositionBias(
            HEADS, num_buckets=8, max_distance=9, bidirectional=not is_decoder
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
    encoded = outputs(encoder)
    expected = theirs.encoder_last_hidden_state.detach().numpy()
    assert_close(encoded[KEEP], expected[KEEP])
    found = outputs(decoder, target, None, encoded, encoder_padding_mask=KEEP)
    assert_close(found, theirs.last_hidden_state.detach().numpy())
