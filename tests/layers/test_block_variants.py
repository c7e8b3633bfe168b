"""The variants of the blocks and of the feed-forward network, against NumPy."""

import math

import keras
import numpy as np
import pytest
from numpy_attention import layer_norm, multi_head_attention
from tensors import array, assert_close, assert_equal, fill_weights, normal

from keras_attn import layers
from keras_attn.layers._internal.initializers import ScaledInitializer

BATCH, LENGTH, TOTAL, WIDTH, HEADS, MIDDLE = 2, 5, 7, 15, 3, 11
X, CONTEXT = normal(BATCH, LENGTH, WIDTH), normal(BATCH, TOTAL, WIDTH, seed=1)
BLOCKS = [layers.TransformerEncoder, layers.TransformerDecoder]
every_block = pytest.mark.parametrize("block_class", BLOCKS)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    "silu": lambda x: x * sigmoid(x),
}


def made(block_class, shapes=(X.shape,), **arguments):
    block = block_class(MIDDLE, HEADS, name="block", **arguments)
    block.build(*shapes)
    return fill_weights(block)


def gated(activation, gain=1.0):
    """A gated feed-forward network without biases."""
    return layers.FeedForward(
        MIDDLE,
        activation,
        use_bias=False,
        gated=True,
        branch_gain=gain,
        name="feed_forward",
    )


class Reference:
    """Branches and normalizations of a block, in float64 from its weights by name."""

    def __init__(self, block):
        self.weights = {
            weight.path.removeprefix("block/"): array(weight).astype("float64")
            for weight in block.weights
        }
        self.causal = isinstance(block, layers.TransformerDecoder)
        activation = block._feed_forward.activation
        self.activation = ACTIVATIONS[keras.activations.serialize(activation)]

    def attention(self, x, name="self_attention", context=None):
        parts = [
            self.weights.get(f"{name}/{part}/{kind}")
            for part in ("query", "key", "value", "attention_output")
            for kind in ("kernel", "bias")
        ]
        parts = [part for part in parts if part is not None]
        looks_back = self.causal and context is None
        allowed = np.tril(np.ones((LENGTH, LENGTH), bool)) if looks_back else True
        values = x if context is None else context
        return multi_head_attention(parts, x, values, allowed=allowed)[0]

    def dense(self, x, name):
        bias = self.weights.get(f"feed_forward/{name}/bias", 0.0)
        return x @ self.weights[f"feed_forward/{name}/kernel"] + bias

    def feed_forward(self, x):
        hidden = self.dense(x, "intermediate")
        if "feed_forward/gate/kernel" in self.weights:
            hidden = self.activation(self.dense(x, "gate")) * hidden
        else:
            hidden = self.activation(hidden)
        return self.dense(hidden, "output")

    def norm(self, x, name):
        names = [path for path in self.weights if path.startswith(f"{name}_norm/")]
        if any(path.endswith("/scale") for path in names):  # a root mean square's
            size = np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
            return x / size * self.weights[f"{name}_norm/scale"]
        shift = self.weights.get(f"{name}_norm/beta", 0.0)
        return layer_norm(x, self.weights[f"{name}_norm/gamma"], shift)


@pytest.mark.parametrize("activation", ["sigmoid", "gelu", "silu"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_gated_feed_forward(activation, use_bias):
    layer = layers.FeedForward(
        MIDDLE, output_dim=13, activation=activation, use_bias=use_bias, gated=True
    )
    layer.build(X.shape)
    weights = fill_weights(layer).get_weights()
    if not use_bias:
        weights = [part for kernel in weights for part in (kernel, 0.0)]
    gate, gate_bias, up, up_bias, down, down_bias = weights
    x = X.astype("float64")
    hidden = ACTIVATIONS[activation](x @ gate + gate_bias) * (x @ up + up_bias)
    assert_close(layer(X), hidden @ down + down_bias)


def test_gated_feed_forward_is_the_one_of_llama():
    torch = pytest.importorskip("torch")
    llama = pytest.importorskip("transformers.models.llama")
    config = llama.LlamaConfig(
        hidden_size=WIDTH, intermediate_size=MIDDLE, num_attention_heads=1, head_dim=2
    )
    theirs = llama.modeling_llama.LlamaMLP(config)
    ours = layers.FeedForward(MIDDLE, activation="silu", use_bias=False, gated=True)
    ours.build(X.shape)
    parts = [theirs.gate_proj, theirs.up_proj, theirs.down_proj]
    ours.set_weights([part.weight.detach().numpy().T for part in parts])
    assert_close(ours(X), theirs(torch.from_numpy(X)).detach().numpy())


def test_dropout_falls_on_the_gated_product():
    layer = layers.FeedForward(
        1, activation=None, dropout=0.5, use_bias=False, gated=True
    )
    x = np.full((500, 1), 3, "float32")
    layer.build(x.shape)
    layer.set_weights([np.ones((1, 1))] * 3)
    assert set(np.unique(array(layer(x, training=True)))) == {0.0, 18.0}


@every_block
@pytest.mark.parametrize("normalize_first", [False, True])
def test_gated_and_bias_free(block_class, normalize_first):
    block = made(
        block_class,
        feed_forward=gated("silu"),
        normalize_first=normalize_first,
        use_bias=False,
    )
    names = {weight.name for weight in block.weights}
    assert names == {"kernel", "gamma"}
    reference, x = Reference(block), X
    for name, branch in (
        ("self_attention", reference.attention),
        ("feedforward", reference.feed_forward),
    ):
        if normalize_first:
            x = x + branch(reference.norm(x, f"{name}_layer"))
        else:
            x = reference.norm(x + branch(x), f"{name}_layer")
    assert_close(block(X), x)


def test_bias_free_cross_attention():
    shapes = [X.shape, CONTEXT.shape]
    block = made(layers.TransformerDecoder, shapes, use_bias=False)
    reference = Reference(block)
    x = reference.norm(X + reference.attention(X), "self_attention_layer")
    read = reference.attention(x, "cross_attention", CONTEXT)
    x = reference.norm(x + read, "cross_attention_layer")
    x = reference.norm(x + reference.feed_forward(x), "feedforward_layer")
    assert_close(block(X, CONTEXT), x)
    assert {weight.name for weight in block.weights} == {"kernel", "gamma"}


def test_what_is_not_the_blocks_own_keeps_its_biases():
    given = {
        "attention": layers.MultiHeadSelfAttention(HEADS),
        "feed_forward": layers.FeedForward(MIDDLE),
        "normalization": keras.layers.LayerNormalization(),
    }
    block = made(layers.TransformerEncoder, use_bias=False, **given)
    names = [weight.name for weight in block.weights]
    assert names.count("bias") == 6 and names.count("beta") == 2


@pytest.mark.on_pytorch
@every_block
@pytest.mark.parametrize("normalization", ["layer_norm", "rms_norm"])
def test_parallel(block_class, normalization):
    block = made(
        block_class, normalize_first=True, parallel=True, normalization=normalization
    )
    reference = Reference(block)
    x = reference.norm(X, "self_attention_layer")
    expected = X + reference.attention(x) + reference.feed_forward(x)
    assert_close(block(X), expected)
    output, _ = block(X, return_attention_scores=True)
    assert_close(output, expected)
    assert sum("norm" in layer.name for layer in block._layers) == 1


@pytest.mark.on_pytorch
@every_block
@pytest.mark.parametrize("normalization", ["layer_norm", "rms_norm"])
def test_sandwich_norm(block_class, normalization):
    block = made(
        block_class,
        normalize_first=True,
        residual=layers.Residual(sandwich_norm=True),
        normalization=normalization,
    )
    reference, x = Reference(block), X
    for name, branch in (
        ("self_attention", reference.attention),
        ("feedforward", reference.feed_forward),
    ):
        output = branch(reference.norm(x, f"{name}_layer"))
        x = x + reference.norm(output, f"{name}_output")
    assert_close(block(X), x)


def test_parallel_sandwich():
    """The sum of the two is normalized, since they are one branch."""
    block = made(
        layers.TransformerDecoder,
        normalize_first=True,
        parallel=True,
        residual=layers.Residual(sandwich_norm=True),
    )
    reference = Reference(block)
    x = reference.norm(X, "self_attention_layer")
    output = reference.attention(x) + reference.feed_forward(x)
    assert_close(block(X), X + reference.norm(output, "self_attention_output"))


def test_sandwich_norm_of_cross_attention():
    shapes = [X.shape, CONTEXT.shape]
    residual = layers.Residual(sandwich_norm=True)
    options = {"normalize_first": True, "residual": residual}
    block = made(layers.TransformerDecoder, shapes, **options)
    reference, x = Reference(block), X
    for name, branch in (
        ("self_attention", reference.attention),
        (
            "cross_attention",
            lambda x: reference.attention(x, "cross_attention", CONTEXT),
        ),
        ("feedforward", reference.feed_forward),
    ):
        output = branch(reference.norm(x, f"{name}_layer"))
        x = x + reference.norm(output, f"{name}_output")
    assert_close(block(X, CONTEXT), x)


@pytest.mark.every_backend
@every_block
def test_layer_scale(block_class):
    block = block_class(
        MIDDLE, HEADS, residual=layers.Residual(layer_scale=0.25), name="block"
    )
    block.build(X.shape)
    scales = [w for w in block.weights if "layer_scale" in w.path]
    assert [w.path for w in scales] == [
        "block/self_attention_layer_scale/scale",
        "block/feedforward_layer_scale/scale",
    ]
    for scale in scales:
        assert_equal(scale, np.full(WIDTH, 0.25))
    reference = Reference(fill_weights(block))
    first, second = (array(scale) for scale in scales)
    x = reference.norm(X + first * reference.attention(X), "self_attention_layer")
    x = reference.norm(x + second * reference.feed_forward(x), "feedforward_layer")
    assert_close(block(X), x)


@every_block
@pytest.mark.parametrize("normalize_first", [False, True])
def test_residual_scale(block_class, normalize_first):
    residual = layers.Residual(scale=3)
    options = {"normalize_first": normalize_first, "residual": residual}
    block = made(block_class, **options)
    reference, x = Reference(block), X
    for name, branch in (
        ("self_attention", reference.attention),
        ("feedforward", reference.feed_forward),
    ):
        if normalize_first:
            x = 3 * x + branch(reference.norm(x, f"{name}_layer"))
        else:
            x = reference.norm(3 * x + branch(x), f"{name}_layer")
    assert_close(block(X), x)


SCALED = ("value", "attention_output", "intermediate", "output")
KEPT = ("query", "key")


def kernels(block):
    """Kernels by the name of their layer; of cross-attention with a `cross/`."""
    found = {}
    for weight in block.weights:
        *_, part, layer, name = weight.path.split("/")
        if name == "kernel":
            found["cross/" * (part == "cross_attention") + layer] = array(weight)
    return found


@pytest.mark.on_pytorch
@pytest.mark.parametrize("kind", ["GlorotUniform", "HeNormal", "RandomNormal"])
@pytest.mark.parametrize(
    "gains", [(0.5, 1, 1), (1, 0.7, 1), (1, 1, 0.6), (0.5, 0.7, 0.6)]
)
def test_gains_scale_some_kernels(kind, gains):
    """The same seed with and without."""
    block_class, shapes = layers.TransformerDecoder, [X.shape, CONTEXT.shape]
    found = []
    for branch_gain, qkv_gain, output_gain in ((1, 1, 1), gains):
        initializer = getattr(keras.initializers, kind)(seed=3)
        block = block_class(
            MIDDLE,
            HEADS,
            kernel_initializer=initializer,
            branch_gain=branch_gain,
            qkv_gain=qkv_gain,
            output_gain=output_gain,
        )
        block.build(*shapes)
        found.append(kernels(block))
    plain, scaled = found
    assert set(plain) == {
        *SCALED,
        *KEPT,
        *(f"cross/{name}" for name in ("query", "key", "value", "attention_output")),
    }
    for name, kernel in plain.items():
        gain = 1.0 if name.endswith(KEPT) else gains[0]
        if name.endswith(("query", "key", "value")):
            gain *= gains[1]
        if name.endswith("output"):
            gain *= gains[2]
        assert_close(scaled[name], gain * kernel, 1e-6)


@pytest.mark.on_pytorch
def test_projections_have_the_initial_deviation_of_those_of_pytorch():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.MultiheadAttention(64, 4).in_proj_weight.detach().numpy()
    layer = layers.MultiHeadSelfAttention(4, qkv_gain=2**-0.5)
    layer.build((None, None, 64))
    for name in ("query", "key", "value"):
        (kernel,) = (w for w in layer.weights if w.path.endswith(f"{name}/kernel"))
        assert_close(array(kernel).std(), theirs.std(), 0.003)


def test_branch_gain_of_a_gated_network():
    plain, scaled = (gated("silu", gain) for gain in (1.0, 0.5))
    for layer in plain, scaled:
        layer.kernel_initializer = keras.initializers.HeNormal(seed=3)
        layer.build(X.shape)
    for weight, other in zip(plain.weights, scaled.weights, strict=True):
        assert_close(array(other), 0.5 * array(weight), 1e-6)


def test_branch_gain_leaves_no_two_kernels_equal_and_given_parts_alone():
    block = layers.TransformerEncoder(WIDTH, HEADS, branch_gain=0.5)
    block.build(X.shape)
    values = [kernel.ravel() for kernel in kernels(block).values()]
    for i, kernel in enumerate(values):
        assert not any(np.array_equal(kernel, other) for other in values[:i])
    ones = {"kernel_initializer": "ones"}
    block = layers.TransformerEncoder(
        MIDDLE,
        HEADS,
        branch_gain=0.5,
        attention=layers.MultiHeadSelfAttention(HEADS, **ones),
        feed_forward=layers.FeedForward(MIDDLE, **ones),
    )
    block.build(X.shape)
    for kernel in kernels(block).values():
        assert_equal(kernel, np.ones_like(kernel))


@pytest.mark.every_backend
def test_branch_gain_in_a_model_that_is_built_while_it_is_traced():
    """Where an assignment after `build` would be lost, or repeated in every step."""

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.block = layers.TransformerEncoder(
                MIDDLE, HEADS, kernel_initializer="ones", branch_gain=0.5
            )

        def call(self, x):
            return self.block(x)

    model = Subclassed()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    for _ in range(2):
        model.fit(X, X, verbose=0)
        for name, kernel in kernels(model.block).items():
            assert_equal(kernel, np.full_like(kernel, 1.0 if name in KEPT else 0.5))


def test_scaled_initializer_round_trip():
    initializer = ScaledInitializer(keras.initializers.HeNormal(seed=5), 0.25)
    config = keras.saving.serialize_keras_object(initializer)
    copy = keras.saving.deserialize_keras_object(config)
    expected = 0.25 * array(keras.initializers.HeNormal(seed=5)((3, 4)))
    for each in (initializer, copy, initializer.clone()):
        assert_close(each((3, 4)), expected, 1e-6)


# By hand from figure 2 of the paper.
DEEP_NORM = {
    (12, 0): {"encoder": (24**0.25, 96**-0.25)},
    (0, 200): {"decoder": (400**0.25, 1600**-0.25)},
    (6, 6): {
        "encoder": (0.81 * 7776 ** (1 / 16), 0.87 * 7776 ** (-1 / 16)),
        "decoder": (18**0.25, 72**-0.25),
    },
    (18, 3): {
        "encoder": (0.81 * 314928 ** (1 / 16), 0.87 * 314928 ** (-1 / 16)),
        "decoder": (9**0.25, 36**-0.25),
    },
}


@pytest.mark.parametrize("depths", DEEP_NORM)
def test_deep_norm(depths):
    found = layers.deep_norm(*depths)
    assert list(found) == list(DEEP_NORM[depths])
    for name, (alpha, beta) in DEEP_NORM[depths].items():
        assert sorted(found[name]) == ["branch_gain", "residual"]
        block = layers.TransformerEncoder(MIDDLE, HEADS, **found[name])
        assert block.residual.scale == pytest.approx(alpha)
        assert block.branch_gain == pytest.approx(beta)


@pytest.mark.parametrize("depths", [(), (0, 0), (-1, 2), (2.0, 1), (True, 2)])
def test_deep_norm_of_bad_depths_is_refused(depths):
    with pytest.raises(ValueError, match="numbers of layers.*Received: num_encoder"):
        layers.deep_norm(*depths)


@pytest.mark.every_backend
def test_stochastic_depth_drops_rows_of_a_branch():
    """One branch: a parallel block, whose rows are alike and so are the outputs."""
    rate, rows = 0.25, 400
    block = made(
        layers.TransformerDecoder,
        normalize_first=True,
        parallel=True,
        residual=layers.Residual(stochastic_depth=rate),
    )
    x = np.repeat(X[:1], rows, axis=0)
    branch = array(block(X[:1]))[0] - X[0]
    outputs = array(block(x, training=True))
    kept = np.abs(outputs - X[0]).max((1, 2)) > 1e-6
    assert_equal(outputs[~kept], x[~kept])
    assert_close(outputs[kept], np.repeat((X[0] + branch / 0.75)[None], kept.sum(), 0))
    # 6 standard deviations either way.
    assert abs(kept.mean() - (1 - rate)) < 6 * np.sqrt(rate * (1 - rate) / rows)
    assert_close(block(x[:2]), X[:1] + branch[None].repeat(2, 0))
    again = np.abs(array(block(x, training=True)) - X[0]).max((1, 2)) > 1e-6
    assert (again != kept).any()


@pytest.mark.every_backend
def test_branches_are_dropped_apart_and_at_free_sizes():
    """Rows of a block with two branches have four outcomes; in Keras's own graph."""
    residual = layers.Residual(stochastic_depth=0.5)
    block = made(layers.TransformerEncoder, normalize_first=True, residual=residual)

    class Training(keras.Model):
        def call(self, x):
            return block(x, training=True)

    model = Training()
    model.block = block
    for length in (LENGTH, 3):
        rows = array(model.predict(np.repeat(X[:1, :length], 64, 0), verbose=0))
        outcomes = np.unique(np.round(rows.reshape(64, -1), 4), axis=0)
        assert len(outcomes) == 4
        assert (np.abs(outcomes - X[0, :length].ravel()).max(1) < 1e-3).sum() == 1


@every_block
def test_dropout_and_stochastic_depth_are_off_without_training(block_class):
    residual = layers.Residual(stochastic_depth=0.5)
    options = {"normalize_first": True, "dropout": 0.5, "residual": residual}
    block = made(block_class, **options)
    plain = made(block_class, normalize_first=True)
    assert_equal(block(X), plain(X))


def test_everything_at_once():
    block = made(
        layers.TransformerDecoder,
        [X.shape, CONTEXT.shape],
        feed_forward=gated("gelu"),
        normalize_first=True,
        normalization="rms_norm",
        use_bias=False,
        residual=layers.Residual(2.0, 0.5, sandwich_norm=True, stochastic_depth=0.5),
        branch_gain=0.5,
    )
    reference, x = Reference(block), X
    for name, branch in (
        ("self_attention", reference.attention),
        (
            "cross_attention",
            lambda x: reference.attention(x, "cross_attention", CONTEXT),
        ),
        ("feedforward", reference.feed_forward),
    ):
        output = branch(reference.norm(x, f"{name}_layer"))
        output = reference.norm(output, f"{name}_output")
        x = 2 * x + reference.weights[f"{name}_layer_scale/scale"] * output
    assert_close(block(X, CONTEXT), x)


BAD = {
    "use_bias": ({"use_bias": None}, "`use_bias` must be a bool.*use_bias=None"),
    "parallel": ({"parallel": 1}, "`parallel` must be a bool.*parallel=1"),
    "parallel after": (
        {"parallel": True},
        "`parallel=True` requires `normalize_first=True`.*normalize_first=False",
    ),
    "sandwich after": (
        {"residual": layers.Residual(sandwich_norm=True)},
        "sandwich_norm=True.*requires.*normalize_first=True.*normalize_first=False",
    ),
    "residual": ({"residual": 2.0}, "must be a `keras_attn.layers.Residual`.*=2.0"),
    "branch_gain": ({"branch_gain": -1.0}, "a positive number.*branch_gain=-1.0"),
}
BAD_RESIDUALS = {
    "sandwich_norm": ({"sandwich_norm": "pre"}, "must be a bool.*='pre'"),
    "layer_scale": ({"layer_scale": "small"}, "must be a number.*layer_scale='small'"),
    "layer_scale nan": ({"layer_scale": np.nan}, "Received: layer_scale=nan"),
    "scale": ({"scale": 0}, "a positive number.*scale=0"),
    "stochastic_depth": ({"stochastic_depth": 1}, "\\[0, 1\\).*stochastic_depth=1"),
}


@every_block
@pytest.mark.parametrize("bad", BAD)
def test_bad_arguments_are_refused(block_class, bad):
    arguments, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        block_class(MIDDLE, HEADS, **arguments)


@pytest.mark.parametrize("bad", BAD_RESIDUALS)
def test_bad_residuals_are_refused(bad):
    arguments, message = BAD_RESIDUALS[bad]
    with pytest.raises(ValueError, match=message):
        layers.Residual(**arguments)


def test_gated_must_be_a_bool():
    with pytest.raises(ValueError, match="`gated` must be a bool.*gated='silu'"):
        layers.FeedForward(3, gated="silu")


def test_a_parallel_block_with_cross_attention_is_refused():
    options = {"normalize_first": True, "parallel": True}
    received = "has no cross-attention. Received: {}="
    cross = layers.CrossAttention(HEADS)
    with pytest.raises(ValueError, match=received.format("cross_attention")):
        layers.TransformerDecoder(MIDDLE, HEADS, cross_attention=cross, **options)
    block = layers.TransformerDecoder(MIDDLE, HEADS, **options)
    received = received.format("encoder_sequence_shape")
    with pytest.raises(ValueError, match=received):
        block(keras.Input((None, WIDTH)), keras.Input((None, WIDTH)))


def test_numbers_of_numpy_are_stored_as_pythons():
    residual = layers.Residual(
        scale=2,
        layer_scale=np.float32(0.5),
        sandwich_norm=np.bool_(True),
        stochastic_depth=np.float64(0.5),
    )
    config = residual.get_config()
    assert list(config.values()) == [2.0, 0.5, True, 0.5]
    assert {type(value) for value in config.values()} == {bool, float}
