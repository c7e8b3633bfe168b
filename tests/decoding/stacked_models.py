"""Small models to decode with, one for each way of stacking layers."""

import functools

import keras
import numpy as np
from keras import ops
from tensors import fill_weights

from keras_attn import layers
from keras_attn.decoding.compile import compile_function
from keras_attn.models import recurrent_translator, transformer_translator

V, D, HEADS = 13, 8, 2


def ids(name):
    return keras.Input((None,), dtype="int32", name=name)


def embed(tokens):
    """Embedded tokens and nothing else: no positions, a mask where the id is 0."""
    return keras.layers.Embedding(V, D, mask_zero=True)(tokens)


def encoded(name="source"):
    """An input and what one encoder block makes of it, padding masked."""
    source = ids(name)
    return source, layers.TransformerEncoder(12, HEADS)(embed(source))


def model(x, *inputs):
    """Logits from `x`, as a model with a dict of inputs."""
    return keras.Model({t.name: t for t in inputs}, keras.layers.Dense(V)(x))


def translator(**options):
    return transformer_translator(
        **{
            "source_vocabulary_size": V,
            "num_layers": 1,
            "hidden_dim": D,
            "intermediate_dim": 12,
            "num_heads": HEADS,
            **options,
        }
    )


def language_model():
    target = ids("target")
    embedding = layers.TokenEmbedding(V, D, scale=True, padding_id=None)
    x = layers.PositionEmbedding(20)(embedding(target))
    for _ in range(2):
        x = layers.TransformerDecoder(12, HEADS, normalize_first=True)(x)
    x = keras.layers.LayerNormalization()(x)
    return keras.Model({"target": target}, embedding(x, reverse=True))


def self_attention():
    target = ids("target")
    x = layers.SinusoidalPositionEmbedding()(embed(target), start_index=3)
    attended = layers.MultiHeadSelfAttention(HEADS)(x, use_causal_mask=True)
    x = keras.layers.LayerNormalization()(keras.layers.Add()([x, attended]))
    return model(layers.FeedForward(12)(x), target)


def linear_attention():
    """By itself and in a block with another feature map, between softmax attention."""
    target, (source, context) = ids("target"), encoded()
    x = layers.SinusoidalPositionEmbedding()(embed(target))
    x = x + layers.LinearSelfAttention(HEADS, 3, 5)(x, use_causal_mask=True)
    attention = layers.LinearSelfAttention(HEADS, feature_map="relu")
    x = layers.TransformerDecoder(12, HEADS, attention=attention)(x, context)
    return model(layers.TransformerDecoder(12, HEADS)(x), source, target)


def general_attention_over_itself():
    target = ids("target")
    x = layers.PositionEmbedding(9)(embed(target))
    layer = layers.MultiHeadAttention(HEADS, key_dim=3, value_dim=5)
    return model(x + layer(x, x, ops.tanh(x), use_causal_mask=True), target)


def cross_attention_twice():
    target, (source, context) = ids("target"), encoded()
    layer, x = layers.CrossAttention(HEADS), embed(target)
    x = layer(x, context)
    return model(layer(x, context), source, target)


def general_attention_over_an_encoder():
    target, (source, context) = ids("target"), encoded()
    x = layers.MultiHeadAttention(HEADS)(embed(target), value=context)
    return model(x, source, target)


def general_attention_with_a_key():
    target, (source, context) = ids("target"), encoded()
    key = keras.layers.Dense(5)(context)
    x = layers.MultiHeadAttention(HEADS)(query=embed(target), value=context, key=key)
    return model(x, source, target)


def one_block_called_twice():
    target, (source, context) = ids("target"), encoded()
    block = layers.TransformerDecoder(12, HEADS)
    return model(block(block(embed(target), context), context), source, target)


def mask_as_an_input():
    target, source = ids("target"), ids("source")
    mask = keras.Input((None,), dtype="bool", name="mask")
    context = keras.layers.Embedding(V, D)(source)
    x = layers.TransformerDecoder(12, HEADS)(
        keras.layers.Embedding(V, D)(target), context, encoder_padding_mask=mask
    )
    return model(x, source, target, mask)


def masks_computed_in_the_graph():
    target, source = ids("target"), ids("source")
    context = keras.layers.Embedding(V, D)(source)
    x = layers.TransformerDecoder(12, HEADS)(
        keras.layers.Embedding(V, D)(target),
        context,
        decoder_padding_mask=ops.not_equal(target, 0),
        encoder_padding_mask=ops.not_equal(source, 0),
    )
    return model(x, source, target)


def two_sources():
    target = ids("target")
    first, context = encoded("first")
    second, other = encoded("second")
    x = layers.TransformerDecoder(12, HEADS)(embed(target), context)
    x = layers.TransformerDecoder(12, HEADS)(x, other)
    return model(x, first, second, target)


def frontier_without_attention():
    """The source's mean is added to every target position."""
    target, (source, context) = ids("target"), encoded()
    mean = keras.layers.Reshape((1, D))(keras.layers.GlobalAveragePooling1D()(context))
    x = keras.layers.Add()([keras.layers.Embedding(V, D)(target), mean])
    return model(layers.TransformerDecoder(12, HEADS)(x), source, target)


def nested_models():
    """An embedding model, called for both sides, and a Sequential model of blocks."""
    tokens = ids("tokens")
    embedding = keras.Model(tokens, layers.PositionEmbedding(20)(embed(tokens)))
    target, source = ids("target"), ids("source")
    vector = (None, D)
    encoder = keras.Sequential(
        [keras.Input(vector), *(layers.TransformerEncoder(12, HEADS) for _ in "ab")]
    )
    encoder.supports_masking = True  # Keras warns of what it does not know.
    context = encoder(embedding(source))
    x, y = keras.Input(vector, name="x"), keras.Input(vector, name="y")
    block = layers.TransformerDecoder(12, HEADS)
    decoder = keras.Model({"x": x, "y": y}, block(block(x, y), y))
    return model(decoder({"y": context, "x": embedding(target)}), source, target)


def nested_models_with_equal_names():
    """As two models from two files have."""

    def part():
        x = keras.Input((None, D))
        return keras.Model(x, keras.layers.Dense(D, name="dense")(ops.tanh(x)))

    target = ids("target")
    x = keras.layers.Embedding(V, D)(target)
    x = part()(layers.SinusoidalPositionEmbedding()(x))
    x = layers.TransformerDecoder(12, HEADS, name="dense")(x)
    return model(keras.layers.LayerNormalization()(part()(x)), target)


def gated_recurrence():
    target = ids("target")
    x = keras.layers.GRU(D, return_sequences=True)(embed(target))
    x = layers.MultiHeadSelfAttention(HEADS)(x, use_causal_mask=True)
    return model(keras.layers.SimpleRNN(D, return_sequences=True)(x), target)


def recurrence_from_an_encoder():
    """A sequence-to-sequence model: the encoder's last state is the decoder's first."""
    target, source = ids("target"), ids("source")
    context, *states = keras.layers.LSTM(D, return_sequences=True, return_state=True)(
        embed(source)
    )
    decoder = keras.layers.LSTM(D, return_sequences=True)
    x = decoder(embed(target), initial_state=states)
    x = keras.layers.Add()([x, layers.CrossAttention(HEADS)(x, context)])
    return model(x, source, target)


def stacked_cells():
    target = ids("target")
    cells = [keras.layers.LSTMCell(D), keras.layers.GRUCell(5)]
    return model(keras.layers.RNN(cells, return_sequences=True)(embed(target)), target)


def captioning():
    """An image, as patches, before a text."""
    image, target = keras.Input((8, 8, 3), name="image"), ids("target")
    patches = keras.layers.Conv2D(D, 4, strides=4)(image)
    patches = keras.layers.Reshape((4, D))(patches)
    context = layers.TransformerEncoder(12, HEADS)(patches)
    x = layers.PositionEmbedding(20)(embed(target))
    return model(layers.TransformerDecoder(12, HEADS)(x, context), image, target)


def a_gate_between_two_branches():
    """Stock layers and operations that work token by token."""
    target, (source, context) = ids("target"), encoded()
    x = keras.layers.Dropout(0.5)(embed(target))
    y = layers.TransformerDecoder(12, HEADS)(x, context)
    z = layers.MultiHeadSelfAttention(HEADS)(x, use_causal_mask=True)
    gate = ops.sigmoid(keras.layers.Dense(D)(keras.layers.Concatenate()([y, z])))
    x = keras.layers.RMSNormalization()(gate * y + (1.0 - gate) * ops.relu(z))
    return model(keras.layers.UnitNormalization()(x), source, target)


def segment_ids():
    """Ids beside the tokens, whose embedding is added to theirs; a mask of its own."""
    target, segments = ids("target"), ids("segments")
    x = keras.layers.Add()([embed(target), keras.layers.Embedding(V, D)(segments)])
    return model(layers.TransformerDecoder(12, HEADS)(x), segments, target)


def explicit_mask_and_positions():
    target, positions = ids("target"), ids("positions")
    mask = keras.Input((None,), dtype="bool", name="mask")
    x = keras.layers.Embedding(V, D)(target)
    x = layers.PositionEmbedding(20)(x, positions=positions)
    x = layers.TransformerDecoder(12, HEADS)(x, decoder_padding_mask=mask)
    x = layers.MultiHeadSelfAttention(HEADS)(x, padding_mask=mask, use_causal_mask=True)
    x = keras.layers.GRU(D, return_sequences=True)(x, mask=mask)
    return model(x, mask, positions, target)


def attention_by_hand():
    """The source is attended to by operations and stock layers, at free length."""
    target, (source, context) = ids("target"), encoded()
    x = keras.layers.GRU(D, return_sequences=True)(embed(target))
    scores = ops.matmul(x, ops.transpose(context, (0, 2, 1)))
    read = ops.matmul(ops.softmax(scores), context)
    again = keras.layers.Attention()([x, context])
    more = keras.layers.MultiHeadAttention(HEADS, 4)(x, context)
    return model(keras.layers.Concatenate()([x, read, again, more]), source, target)


def memory_in_the_recurrence():
    """Squeeze and excite by a running state: no one's design, stock parts mixed."""
    target, segments = ids("target"), ids("segments")
    x = embed(target)
    state = keras.layers.LSTM(5, return_sequences=True)(x)
    gate = keras.layers.Dense(D, activation="sigmoid")(state)
    style = keras.layers.Embedding(V, D)(segments)
    x = ops.where(ops.expand_dims(ops.greater(segments, 4), -1), x * gate, x - style)
    x = ops.swish(x)
    query = keras.layers.Dense(6)(style)
    attended = layers.MultiHeadAttention(HEADS)(query, x, use_causal_mask=True)
    return model(keras.layers.Concatenate()([attended, x]), segments, target)


def experts_by_token():
    """Two feed-forwards mixed by a softmax gate, and maxout over parallel blocks."""
    target, (source, context) = ids("target"), encoded()
    x = layers.SinusoidalPositionEmbedding()(embed(target))
    gate = ops.softmax(keras.layers.Dense(2)(x))
    experts = ops.stack([layers.FeedForward(n)(x) for n in (4, 12)], axis=-1)
    x = x + ops.sum(experts * ops.expand_dims(gate, 2), axis=-1)
    blocks = [layers.TransformerDecoder(12, HEADS)(x, context) for _ in "ab"]
    x = keras.layers.Maximum()(blocks)
    x = keras.layers.BatchNormalization()(x)
    return model(keras.layers.PReLU(shared_axes=[1])(x), source, target)


def logits_among_other_outputs():
    """A head that pools over the target stands beside; it has an input of its own."""
    target, (source, context) = ids("target"), encoded()
    style = keras.Input((3,), name="style")
    x = layers.TransformerDecoder(12, HEADS)(embed(target), context)
    pooled = keras.layers.GlobalAveragePooling1D()(x)
    label = keras.layers.Dense(2)(keras.layers.Concatenate()([pooled, style]))
    inputs = {t.name: t for t in (source, style, target)}
    return keras.Model(inputs, {"label": label, "logits": keras.layers.Dense(V)(x)})


def recurrent(**options):
    return recurrent_translator(V, hidden_dim=D, **options)


def additive_attention_over_an_encoder():
    target, (source, context) = ids("target"), encoded()
    x = embed(target)
    x = keras.layers.Concatenate()([x, layers.AdditiveAttention(5)(x, context)])
    return model(x, source, target)


def dot_products_over_itself():
    target = ids("target")
    x = layers.PositionEmbedding(9)(embed(target))
    attended = layers.DotProductAttention("general")(x, x, use_causal_mask=True)
    return model(x + attended, target)


def recurrent_decoder_over_a_transformer_encoder():
    """Multi-head attention, fed; no state but zeros to begin with."""
    target, (source, context) = ids("target"), encoded()
    decoder = layers.RecurrentDecoder(6, 2, attention=layers.CrossAttention(HEADS))
    return model(decoder(embed(target), context), source, target)


def _modern(**options):
    """Arguments of a block with RMS norm, a gate and no biases."""
    return dict(
        normalization="rms_norm",
        use_bias=False,
        feed_forward=layers.FeedForward(
            12, activation="silu", use_bias=False, gated=True
        ),
        normalize_first=True,
        **options,
    )


def parallel_blocks():
    target = ids("target")
    x = layers.PositionEmbedding(20)(embed(target))
    options = _modern(
        parallel=True,
        residual=layers.Residual(layer_scale=0.5, stochastic_depth=0.5),
    )
    return model(layers.TransformerDecoder(12, HEADS, **options)(x), target)


def sandwiched_blocks():
    target, (source, context) = ids("target"), encoded()
    options = _modern(residual=layers.Residual(sandwich_norm=True))
    x = layers.TransformerDecoder(12, HEADS, **options)(embed(target), context)
    return model(x, source, target)


def deep_norm_block():
    target, (source, context) = ids("target"), encoded()
    options = layers.deep_norm(1, 1)["decoder"]
    x = layers.TransformerDecoder(12, HEADS, **options)(embed(target), context)
    return model(x, source, target)


def _blocks_with(*attentions):
    """Decoder blocks of today around attention layers."""
    target = ids("target")
    x = embed(target)
    for attention in attentions:
        block = layers.TransformerDecoder(12, HEADS, attention=attention, **_modern())
        x = block(x)
    return model(x, target)


def rotary_grouped_windowed():
    return _blocks_with(
        *(
            layers.MultiHeadSelfAttention(
                HEADS,
                key_dim=4,
                num_key_value_heads=1,
                position=layers.RotaryPositionEmbedding(),
                sliding_window=window,
                num_global_tokens=num_global,
            )
            for window, num_global in ((3, 0), (2, 1))
        )
    )


def alibi_and_relative_bias():
    """The relative one shared by two layers, the last of them not in a block."""
    relative = layers.RelativePositionBias(8, 6, bidirectional=False)
    target = ids("target")
    x = embed(target)
    for position in layers.AlibiPositionBias(), relative:
        attention = layers.MultiHeadSelfAttention(HEADS, position=position)
        x = layers.TransformerDecoder(12, HEADS, attention=attention)(x)
    attention = layers.MultiHeadAttention(HEADS, position=relative)
    return model(x + attention(x, x, use_causal_mask=True), target)


def sinks_soft_cap_gate():
    return _blocks_with(
        layers.MultiHeadSelfAttention(HEADS, use_sinks=True, logit_soft_cap=0.7),
        layers.MultiHeadSelfAttention(
            HEADS,
            qk_norm="rms_norm",
            scale=1.3,
            use_sinks=True,
            use_gate=True,
            sliding_window=3,
        ),
    )


CASES = {
    "translator": translator,
    "pre-norm translator": functools.partial(translator, normalize_first=True),
    "translator of two vocabularies": functools.partial(
        translator, source_vocabulary_size=17, target_vocabulary_size=V
    ),
    "translator of 1 and 2 blocks": functools.partial(translator, num_layers=(1, 2)),
    "translator of three matrices": functools.partial(
        translator, share_embeddings=False
    ),
    "recurrent, additive": recurrent,
    "recurrent, general, of two LSTM layers": functools.partial(
        recurrent, attention="general", cell="lstm", num_layers=2, residual=True
    ),
    "recurrent, dot, not fed": functools.partial(
        recurrent, attention="dot", input_feeding=False
    ),
    "rotary, grouped, windowed": rotary_grouped_windowed,
    "ALiBi and relative bias": alibi_and_relative_bias,
    "sinks, soft cap, gate": sinks_soft_cap_gate,
    "recurrent, no attention": functools.partial(recurrent, attention=None),
    **{
        function.__name__.replace("_", " "): function
        for function in (
            additive_attention_over_an_encoder,
            dot_products_over_itself,
            recurrent_decoder_over_a_transformer_encoder,
            language_model,
            parallel_blocks,
            sandwiched_blocks,
            deep_norm_block,
            self_attention,
            linear_attention,
            general_attention_over_itself,
            cross_attention_twice,
            general_attention_over_an_encoder,
            general_attention_with_a_key,
            one_block_called_twice,
            mask_as_an_input,
            masks_computed_in_the_graph,
            two_sources,
            frontier_without_attention,
            nested_models,
            nested_models_with_equal_names,
            gated_recurrence,
            recurrence_from_an_encoder,
            stacked_cells,
            captioning,
            a_gate_between_two_branches,
            segment_ids,
            explicit_mask_and_positions,
            attention_by_hand,
            memory_in_the_recurrence,
            experts_by_token,
            logits_among_other_outputs,
        )
    },
}


def make(name, seed=0, **options):
    """The model of one case, with random values in all its weights."""
    full = fill_weights(CASES[name](**options), seed)
    for weight in full.weights:
        if weight.path.endswith("moving_variance"):
            weight.assign(1.0 + ops.square(weight))
    return full


def lively_translator():
    """One whose greedy translations differ from source to source, and in length."""
    model = translator(share_embeddings=False)
    rng = np.random.default_rng(13)
    for weight in model.weights:
        if len(weight.shape) > 1:  # With random biases, one token always wins.
            fan_in = np.prod(weight.shape[:-1])
            weight.assign(rng.normal(size=weight.shape) / np.sqrt(fan_in))
    return model


BESIDE = {"segments", "positions", "mask"}


def arrays(model, batch=3, source=5, target=7, seed=0):
    """Random inputs; sources end in padding, targets have it at several places."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for tensor in model.inputs:
        if tensor.name == "target":
            value = rng.integers(1, V, (batch, target))
            value[0, 2] = value[1, -2:] = value[2, 0] = 0
        elif tensor.dtype == "float32":
            inputs[tensor.name] = rng.normal(size=(batch, *tensor.shape[1:]))
            continue
        else:
            length = target if tensor.name in BESIDE else source
            value = rng.integers(1, V, (batch, length))
            value[0, -2:] = value[1, -1:] = 0
        inputs[tensor.name] = value.astype("int32")
    if "mask" in inputs:
        inputs["mask"] = inputs.get("source", inputs["target"]) != 0
    return inputs


def fast(function, model):
    """`function` compiled where single operations take far longer, on JAX."""
    if keras.backend.backend() != "jax":
        return function
    return compile_function(function, model.variables)


def full_logits(model, inputs):
    inputs = {name: ops.convert_to_tensor(value) for name, value in inputs.items()}
    outputs = fast(lambda inputs: model(inputs, training=False), model)(inputs)
    return ops.convert_to_numpy(
        outputs["logits"] if isinstance(outputs, dict) else outputs
    )


def stepped_logits(step, inputs, sizes):
    """Logits of a step model that is given `sizes` tokens, one run after another."""
    target = inputs[step.target]
    run = fast(step.step, step)
    frontier = {}
    if step.encoder:
        given = {
            t.name: ops.convert_to_tensor(inputs[t.name], dtype=t.dtype)
            for t in step.encoder.inputs
        }
        frontier = fast(step.encode, step.encoder)(given)
    cache, index, logits = step.empty_cache(len(target)), 0, []
    for size in sizes:
        position = ops.convert_to_tensor(index, dtype="int32")
        tokens = ops.convert_to_tensor(target[:, index : index + size])
        new, cache = run(tokens, position, frontier, cache)
        logits.append(ops.convert_to_numpy(new))
        index += size
    return np.concatenate(logits, axis=1)
