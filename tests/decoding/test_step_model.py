"""A step model gives, token by token, what the full model gives at once."""

import keras
import numpy as np
import pytest
from keras import ops
from stacked_models import (
    CASES,
    D,
    V,
    arrays,
    embed,
    encoded,
    full_logits,
    ids,
    language_model,
    make,
    model,
    stepped_logits,
    translator,
)
from tensors import fill_weights

from keras_attn import layers
from keras_attn.decoding import StepModel, generate, step_model

LENGTH = 7
# Tokens a call: a prompt, one, a run of several. Of two lengths, as JAX compiles each.
RUN = [3, 1, 3]


@pytest.fixture(scope="module")
def stepped():
    """A translator and its step model with room for more than `LENGTH` positions."""
    full = make("translator of 1 and 2 blocks")
    return full, step_model(full, LENGTH + 4)


# The last four are such as a user might invent: nothing was designed for them.
ON_EVERY_BACKEND = {
    "recurrent, additive",
    "recurrent, dot, not fed",
    "additive attention over an encoder",
    "language model",
    "rotary, grouped, windowed",
    "one block called twice",
    "masks computed in the graph",
    "nested models",
    "recurrence from an encoder",
    "stacked cells",
    "segment ids",
    "explicit mask and positions",
    "attention by hand",
    "memory in the recurrence",
    "experts by token",
    "logits among other outputs",
}


def _marks(name):
    return [pytest.mark.every_backend] if name in ON_EVERY_BACKEND else []


@pytest.mark.parametrize("name", [pytest.param(n, marks=_marks(n)) for n in CASES])
def test_cached_equals_uncached_at_every_position(name):
    full = make(name)
    inputs = arrays(full)
    step = step_model(full, LENGTH, validate=False)
    expected = full_logits(full, inputs)
    assert np.ptp(expected) > 0.5
    found = stepped_logits(step, inputs, RUN)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.every_backend
def test_a_model_checked_while_it_is_made():
    full = make("self attention")
    step = step_model(full, LENGTH)
    inputs = arrays(full)
    np.testing.assert_allclose(
        stepped_logits(step, inputs, RUN),
        full_logits(full, inputs),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("dtype", "digits"), [("mixed_float16", 1e-2), ("mixed_bfloat16", 8e-2)]
)
def test_half_precision(dtype, digits):
    full = fill_weights(translator(dtype=dtype))
    step = step_model(full, LENGTH)
    caches = keras.tree.flatten(step.empty_cache(2))
    half = dtype.removeprefix("mixed_")
    assert {keras.backend.standardize_dtype(c.dtype) for c in caches} == {half, "bool"}
    inputs = arrays(full)
    expected = full_logits(full, inputs).astype("float32")
    found = stepped_logits(step, inputs, RUN).astype("float32")
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=digits * scale)


@pytest.mark.parametrize("sizes", [[1] * LENGTH, [5, 1, 1], [2, 5], [LENGTH]])
def test_any_split_into_steps_gives_the_same(stepped, sizes):
    """With room left over, which must not be attended to."""
    full, step = stepped
    inputs = arrays(full)
    assert step.max_length == LENGTH + 4
    np.testing.assert_allclose(
        stepped_logits(step, inputs, sizes),
        full_logits(full, inputs),
        rtol=1e-5,
        atol=1e-5,
    )


def test_arrays_and_numbers_will_do(stepped):
    full, step = stepped
    inputs = arrays(full)
    frontier = step.encode(inputs)
    logits, _ = step.step(inputs["target"], 0, frontier, step.empty_cache(3))
    np.testing.assert_allclose(
        ops.convert_to_numpy(logits), full_logits(full, inputs), rtol=1e-5, atol=1e-5
    )


def test_weights_are_those_of_the_model():
    full = make("translator")
    step = step_model(full, LENGTH)
    own = {id(variable) for variable in full.variables}
    assert {id(variable) for variable in step.variables} <= own
    assert {id(variable) for variable in step.encoder.variables} <= own
    inputs = arrays(full)
    before = stepped_logits(step, inputs, RUN)
    fill_weights(full, seed=1)
    after = stepped_logits(step, inputs, RUN)
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(after, full_logits(full, inputs), rtol=1e-5, atol=1e-5)


def test_dropout_is_off():
    full = fill_weights(translator(dropout=0.9))
    step = step_model(full, LENGTH)
    inputs = arrays(full)
    found = [stepped_logits(step, inputs, RUN) for _ in range(2)]
    np.testing.assert_array_equal(*found)


def test_it_is_a_functional_model_with_a_summary(stepped):
    full, step = stepped
    assert isinstance(step, StepModel) and isinstance(step, keras.Model)
    lines = []
    step.summary(print_fn=lambda text, line_break=True: lines.append(text))
    summary = "\n".join(lines)
    assert "decoder_0_step" in summary and "decoder_1_step" in summary
    assert "encoder_0" not in summary
    assert step.count_params() < full.count_params()
    assert step.output["logits"].shape == full.output_shape


def test_each_call_of_a_shared_block_has_its_own_cache():
    step = step_model(make("one block called twice"), LENGTH, validate=False)
    cache = step.empty_cache(4)
    assert len(cache) == 2
    for leaves in cache.values():
        assert set(leaves) == {"key", "value", "padding_mask"}
        assert tuple(leaves["key"].shape) == (4 * 2, LENGTH, 4)  # two heads


def test_the_encoder_projects_the_context_once(stepped):
    """Keys and values come with the frontier: no step multiplies by their kernels."""
    full, step = stepped
    frontier = step.encode(arrays(full))
    shapes = {tuple(value.shape) for value in frontier.values() if len(value.shape) > 2}
    assert shapes == {(3, 2, 5, 4)}
    assert step.encode(arrays(full)).keys() == frontier.keys()


def test_a_model_without_other_inputs_has_no_encoder():
    step = step_model(make("language model"), LENGTH, validate=False)
    assert step.encoder is None
    assert step.encode({}) == {}
    assert step.target == "target"


def bare(layer):
    """A language model around `layer`, which may look where it must not."""
    target = ids("target")
    x = keras.layers.Embedding(13, 8, name="embedding")(target)
    return keras.Model(target, keras.layers.Dense(13)(layer(x)))


def pooled(x):
    mean = keras.layers.GlobalAveragePooling1D(name="culprit")(x)
    return keras.layers.Add()([x, keras.layers.Reshape((1, 8))(mean)])


def masked(x):
    mask = keras.ops.ones((1, 6, 6), dtype="bool")
    layer = layers.MultiHeadSelfAttention(2, name="culprit")
    return layer(x, attention_mask=mask, use_causal_mask=True)


LOOK_AHEAD = {
    "encoder": lambda x: layers.TransformerEncoder(8, 2, name="culprit")(x),
    "self-attention": lambda x: layers.MultiHeadSelfAttention(2, name="culprit")(x),
    "decoder": lambda x: layers.TransformerDecoder(8, 2, name="culprit")(
        x, use_causal_mask=False
    ),
    "stock attention": lambda x: keras.layers.MultiHeadAttention(2, 4, name="culprit")(
        x, x, use_causal_mask=True
    ),
    "convolution": keras.layers.Conv1D(8, 3, padding="causal", name="culprit"),
    "recurrence backwards": keras.layers.GRU(
        8, return_sequences=True, go_backwards=True, name="culprit"
    ),
    "recurrence both ways": keras.layers.Bidirectional(
        keras.layers.GRU(8, return_sequences=True), name="culprit"
    ),
    "pooling": pooled,
    "attention mask": masked,
    "positions": layers.PositionEmbedding(LENGTH - 1, name="culprit"),
    "positions of a lambda": keras.layers.Lambda(
        lambda x: (
            x + ops.reshape(ops.arange(ops.shape(x)[1], dtype="float32"), (-1, 1))
        ),
        output_shape=lambda shape: shape,
        name="culprit",
    ),
}


@pytest.mark.parametrize("name", LOOK_AHEAD)
def test_a_layer_that_cannot_be_stepped_is_named(name):
    with pytest.raises(ValueError, match="'culprit'"):
        step_model(bare(LOOK_AHEAD[name]), LENGTH)


def segments_by_the_tokens():
    """A count of one token: of random ones, most likely, there are none."""
    target = ids("target")
    count = ops.cumsum(ops.cast(ops.equal(target, 7), "int32"), axis=1)
    return model(embed(target) + keras.layers.Embedding(9, 8)(count), target)


ACROSS = {
    "cumsum": segments_by_the_tokens,
    "flip": lambda: bare(lambda x: x + ops.flip(x, axis=1)),
    "sort": lambda: bare(lambda x: ops.sort(x, axis=1)),
    "roll": lambda: bare(lambda x: ops.roll(x, 1, axis=1)),
    "far": lambda: bare(
        keras.layers.Conv1D(8, 2, dilation_rate=20, padding="causal", name="far")
    ),
    "softmax": lambda: bare(lambda x: x * ops.softmax(x, axis=1)),
}


@pytest.mark.parametrize("name", ACROSS)
def test_an_operation_across_positions_is_named(name):
    with pytest.raises(
        ValueError, match=f"output of '{name}.*may depend, on other positions"
    ):
        step_model(ACROSS[name](), LENGTH)


def test_keras_attention_is_refused_with_what_replaces_it():
    attention = keras.layers.MultiHeadAttention(1, 4, name="culprit")
    with pytest.raises(ValueError, match=r"'culprit'.*checkpoints\.from_keras_layer"):
        step_model(bare(lambda x: attention(x, x, use_causal_mask=True)), LENGTH)


# Keras warns of each layer that cannot be quantized.
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
@pytest.mark.parametrize(
    "config",
    [
        keras.quantizers.Int8QuantizationConfig(),
        keras.quantizers.Int4QuantizationConfig(block_size=4),  # with group indices
    ],
)
def test_quantized_weights(config):
    full = fill_weights(language_model())
    full.quantize(config=config)
    step, inputs = step_model(full, LENGTH), arrays(full)
    np.testing.assert_allclose(
        stepped_logits(step, inputs, RUN),
        full_logits(full, inputs),
        rtol=0.05,
        atol=0.05,
    )


def test_a_context_that_depends_on_the_target():
    target, (source, context) = ids("target"), encoded()
    x = layers.CrossAttention(2, name="culprit")(context, embed(target))
    with pytest.raises(
        ValueError, match="'culprit'.*`context` must not depend on the generated"
    ):
        step_model(model(x, source, target), LENGTH)


def test_weights_that_are_no_numbers():
    with pytest.raises(ValueError, match="may have diverged"):
        step_model(bare(lambda x: x * np.nan), LENGTH)


def test_looking_ahead_behind_an_embedding_of_ones_own():
    """Its vocabulary is not known; all the same the ids it is tried with differ."""
    target = ids("target")
    vectors = keras.layers.Dense(8)(ops.one_hot(target, 13))
    x = layers.TransformerEncoder(12, 2, name="culprit")(vectors)
    with pytest.raises(ValueError, match="'culprit'"):
        step_model(model(x, target), LENGTH)


@pytest.mark.parametrize("length", [LENGTH, 4])
def test_an_input_of_fixed_length(length):
    target = keras.Input((LENGTH,), dtype="int32", name="target")
    x = layers.PositionEmbedding(LENGTH)(keras.layers.Embedding(13, 8)(target))
    x = layers.TransformerDecoder(12, 2)(x)
    full = fill_weights(model(x, target))
    step = step_model(full, length)
    inputs = arrays(full)
    found = stepped_logits(step, inputs, [2, 1, 1] + [1] * (length - 4))
    np.testing.assert_allclose(
        found, full_logits(full, inputs)[:, :length], rtol=1e-5, atol=1e-5
    )


def test_flattened_positions_are_refused_by_name():
    target = keras.Input((6,), dtype="int32", name="target")
    x = keras.layers.Flatten(name="culprit")(keras.layers.Embedding(13, 8)(target))
    x = keras.layers.Reshape((6, 13))(keras.layers.Dense(6 * 13)(x))
    with pytest.raises(ValueError, match="step by step.*'culprit'"):
        step_model(keras.Model(target, x), 6)


def test_room_for_as_many_positions_as_were_learned():
    full = fill_weights(bare(layers.PositionEmbedding(LENGTH, name="positions")))
    assert step_model(full, LENGTH).max_length == LENGTH
    with pytest.raises(ValueError, match="'positions'.*7 learned positions.*have 8"):
        step_model(full, LENGTH + 1)


def test_models_that_are_called_on_a_bare_tensor():
    """Keras warns where a structure does not fit, and warnings are errors here."""
    assert step_model(bare(lambda x: x), LENGTH).target == "target"
    sequential = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="tokens"),
            *bare(lambda x: x).layers[1:],
        ]
    )
    assert step_model(sequential, LENGTH).target == "tokens"


def two_inputs(first, second, uses_first=True):
    inputs = ids(first), ids(second)
    x = embed(inputs[0] if uses_first else inputs[1])
    return model(layers.CrossAttention(2)(x, embed(inputs[1])), *inputs)


def test_the_target_can_be_named():
    full = two_inputs("written", "read")
    assert step_model(full, LENGTH, target="written").target == "written"
    with pytest.raises(ValueError, match=r"\['read', 'written'\].*target='target'"):
        step_model(full, LENGTH)
    with pytest.raises(ValueError, match="target='said'"):
        step_model(full, LENGTH, target="said")


def test_a_target_that_nothing_depends_on():
    with pytest.raises(ValueError, match="must depend on its input 'target'"):
        step_model(two_inputs("target", "source", uses_first=False), LENGTH)


def test_what_is_no_functional_model():
    class Subclassed(keras.Model):
        def call(self, inputs):
            return inputs

    for bad in (Subclassed(), keras.layers.Dense(3), None):
        with pytest.raises(ValueError, match="Functional.*Received: model="):
            step_model(bad, LENGTH)


@pytest.mark.parametrize("length", [0, -1, 2.5])
def test_a_length_without_room(length):
    with pytest.raises(ValueError, match=f"max_length={length}"):
        step_model(language_model(), length)


def test_few_learned_source_positions():
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    encoded = layers.PositionEmbedding(3)(layers.TokenEmbedding(11, 8)(source))
    decoded = layers.TokenEmbedding(11, 8, name="tokens")(target)
    decoded = layers.TransformerDecoder(8, 2, name="index")(decoded, encoded)
    model = keras.Model([source, target], keras.layers.Dense(11)(decoded))
    assert step_model(model, 5).max_length == 5


def test_the_output_can_be_named():
    full = make("logits among other outputs")
    step = step_model(full, LENGTH, validate=False)
    assert [t.name for t in step.encoder.inputs] == ["source"]
    with pytest.raises(ValueError, match=r"\['label', 'logits'\].*output='words'"):
        step_model(full, LENGTH, output="words")
    with pytest.raises(ValueError, match=r"'label' must be logits.*shape=\(None, 2\)"):
        step_model(full, LENGTH, output="label")
    target = ids("target")
    first, second = (keras.layers.Dense(13, name=n)(embed(target)) for n in "ab")
    listed = keras.Model(target, [first, second])
    with pytest.raises(ValueError, match=r"\['a', 'b'\].*output='logits'"):
        step_model(listed, LENGTH)
    step = step_model(listed, LENGTH, output="b")
    tokens = arrays(listed)
    np.testing.assert_allclose(
        stepped_logits(step, tokens, RUN),
        ops.convert_to_numpy(listed(tokens["target"])[1]),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("segment ids", {"segments"}),
        ("explicit mask and positions", {"mask", "positions"}),
        ("memory in the recurrence", {"segments"}),
        ("attention by hand", set()),
        ("frontier without attention", set()),
    ],
)
def test_what_runs_beside_the_target(name, beside):
    step = step_model(make(name), LENGTH)
    assert step.aligned_inputs == step.extendable_inputs == beside


def test_a_source_added_position_by_position():
    """Its encoder sees all of it: it runs beside, but cannot be continued."""
    target, (source, context) = ids("target"), encoded()
    full = fill_weights(model(embed(target) + context, source, target))
    step = step_model(full, LENGTH)
    assert step.aligned_inputs == {"source"} and step.extendable_inputs == set()
    inputs = arrays(full, source=LENGTH)
    np.testing.assert_allclose(
        stepped_logits(step, inputs, RUN),
        full_logits(full, inputs),
        rtol=1e-5,
        atol=1e-5,
    )
    with pytest.raises(ValueError, match="'source' is aligned.*length 3, that"):
        source = {"source": inputs["source"][:, :1]}
        generate(full, source, start_token_id=1, max_new_tokens=3)


def test_generate_continues_segment_ids():
    full = make("segment ids")
    prompt = np.array([[3, 4, 5], [6, 7, 0]], "int32")
    segments = np.array([[1, 1, 2], [3, 4, 0]], "int32")
    given = np.array([[1, 1, 2, 2, 2, 2], [3, 4, 4, 4, 4, 4]], "int32")
    short, long = (
        generate(full, {"target": prompt, "segments": value}, max_new_tokens=4)
        for value in (segments, given)
    )
    for name in short:
        np.testing.assert_array_equal(*map(np.asarray, (short[name], long[name])))
    row = [3, 4, 5]
    for token in ops.convert_to_numpy(short["token_ids"])[0, 0]:
        inputs = {"target": [row], "segments": given[:1, : len(row)]}
        inputs = {k: np.asarray(v, "int32") for k, v in inputs.items()}
        assert full_logits(full, inputs)[0, -1].argmax() == token
        row.append(int(token))
    with pytest.raises(ValueError, match="'segments' is aligned.*length 6.* or 3"):
        generate(full, {"target": prompt, "segments": given[:, :5]}, max_new_tokens=4)
    with pytest.raises(ValueError, match="'segments' seems to count positions"):
        counted = np.array([[1, 2, 3], [1, 2, 0]], "int32")
        generate(full, {"target": prompt, "segments": counted}, max_new_tokens=4)


class MaskedIds(keras.layers.Embedding):
    """An embedding that masks an id other than 0, and not by an argument."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.supports_masking = True

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 4)


# Layers to nest, and the layers before them.
NESTED_MASKS = {
    "masking": lambda: (
        [keras.layers.Embedding(V, D), keras.layers.Dense(1, activation="relu")],
        [keras.layers.Masking(0.0)],
    ),
    "embedding": lambda: (
        [],
        [keras.layers.Embedding(V, D, mask_zero=True), keras.layers.Dense(D)],
    ),
    "own mask": lambda: ([], [MaskedIds(V, D)]),
    "dense": lambda: (
        [keras.layers.Embedding(V, D, mask_zero=True)],
        [keras.layers.Dense(D, activation="relu")],
    ),
    "feed-forward": lambda: (
        [layers.TokenEmbedding(V, D), layers.SinusoidalPositionEmbedding()],
        [layers.FeedForward(6)],
    ),
    "decoder": lambda: (
        [layers.TokenEmbedding(V, D)],
        [layers.TransformerDecoder(6, 2)],
    ),
}


# Keras does not know of these masks while it builds the model.
@pytest.mark.filterwarnings("ignore:.*was passed an input with a mask")
@pytest.mark.parametrize("kind", [keras.layers.GRU, keras.layers.LSTM])
@pytest.mark.parametrize("name", NESTED_MASKS)
def test_masks_of_nested_models(name, kind):
    """A recurrent layer skips the masked positions, as in the model itself."""
    before, nested = NESTED_MASKS[name]()
    target = x = ids("target")
    for layer in [*before, keras.Sequential(nested), kind(D, return_sequences=True)]:
        x = layer(x)
    model = fill_weights(keras.Model({"target": target}, keras.layers.Dense(V)(x)))
    tokens = np.array([[1, 0, 3, 4, 0, 2], [3, 4, 4, 1, 0, 5]], "int32")
    step = step_model(model, 6)
    np.testing.assert_allclose(
        stepped_logits(step, {"target": tokens}, [1] * 6),
        full_logits(model, {"target": tokens}),
        rtol=1e-5,
        atol=1e-5,
    )
