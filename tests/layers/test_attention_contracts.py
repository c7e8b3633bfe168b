"""What attention may not let through: padding, the future, the rest of the batch."""

import keras
import numpy as np
import pytest
from backend_marks import on_every_backend
from tensors import (
    array,
    assert_close,
    assert_equal,
    fill_weights,
    gradients,
    lengths_mask,
    normal,
)

from keras_attn import layers

BATCH, LENGTH, WIDTH, HEADS = 3, 7, 15, 3
KERNELS = ["auto", "full", "fused"]


def self_attention(**kwargs):
    return layers.MultiHeadSelfAttention(HEADS, **kwargs)


def encoder(**kwargs):
    return layers.TransformerEncoder(29, HEADS, **kwargs)


def decoder(**kwargs):
    return layers.TransformerDecoder(29, HEADS, **kwargs)


def built(layer, *shapes):
    layer.build(*(shapes or [(BATCH, LENGTH, WIDTH)]))
    return fill_weights(layer)


def of_kernel(make, kernel, **kwargs):
    """A layer, or a block around one, with the given kernel."""
    if make is self_attention:
        return make(attention_kernel=kernel, **kwargs)
    return make(attention=self_attention(attention_kernel=kernel, **kwargs), **kwargs)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("make", [self_attention, encoder, decoder])
def test_padded_equals_cropped(make, kernel):
    layer = built(of_kernel(make, kernel))
    x = normal(BATCH, LENGTH, WIDTH)
    lengths = [7, 4, 1]
    name = "decoder_padding_mask" if make is decoder else "padding_mask"
    # What stands in the padding must not matter, be it huge.
    keep = lengths_mask(lengths, LENGTH)
    x = np.where(keep[..., None], x, 1e3).astype("float32")
    padded = array(layer(x, **{name: keep}))
    for row, length in enumerate(lengths):
        alone = layer(x[row : row + 1, :length])
        assert_close(padded[row : row + 1, :length], alone)


def test_padded_context_equals_cropped():
    layer = built(decoder(), (BATCH, LENGTH, WIDTH), (BATCH, 5, 11))
    x, context = normal(BATCH, LENGTH, WIDTH), normal(BATCH, 5, 11, seed=1)
    lengths = [5, 2, 1]
    padded = array(layer(x, context, encoder_padding_mask=lengths_mask(lengths, 5)))
    for row, length in enumerate(lengths):
        alone = layer(x[row : row + 1], context[row : row + 1, :length])
        assert_close(padded[row : row + 1], alone)


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("make", [self_attention, decoder])
def test_the_future_does_not_reach_back(make, kernel, scores):
    layer = built(of_kernel(make, kernel, dropout=0.5))
    arguments = {"use_causal_mask": True, "return_attention_scores": scores}
    x = normal(BATCH, LENGTH, WIDTH)
    before = layer(x, **arguments)
    before = array(before[0] if scores else before)
    for position in range(1, LENGTH):
        changed = x.copy()
        changed[:, position] += 10
        after = layer(changed, **arguments)
        after = array(after[0] if scores else after)
        np.testing.assert_array_equal(after[:, :position], before[:, :position])
        assert np.abs(after[:, position:] - before[:, position:]).max(-1).min() > 1e-3


def test_the_future_does_not_reach_back_while_training():
    x = normal(BATCH, LENGTH, WIDTH)
    changed = x.copy()
    changed[:, 4:] += 10
    outputs = []
    for inputs in (x, changed):
        layer = built(self_attention(dropout=0.5, seed=1))
        outputs.append(array(layer(inputs, use_causal_mask=True, training=True)))
    np.testing.assert_array_equal(outputs[0][:, :4], outputs[1][:, :4])


def test_a_decoder_can_look_ahead_when_told():
    layer = built(decoder())
    x = normal(BATCH, LENGTH, WIDTH)
    changed = x.copy()
    changed[:, -1] += 10
    differs = array(layer(x, use_causal_mask=False)) - array(
        layer(changed, use_causal_mask=False)
    )
    assert np.abs(differs[:, 0]).max() > 1e-3


@pytest.mark.parametrize("make", [self_attention, encoder, decoder])
def test_batch_composition_does_not_matter(make):
    layer = built(make())
    x = normal(BATCH, LENGTH, WIDTH)
    whole = array(layer(x))
    for row in range(BATCH):
        assert_close(whole[row : row + 1], layer(x[row : row + 1]), 2e-6)
    assert_close(whole[::-1], layer(np.ascontiguousarray(x[::-1])), 2e-6)


@pytest.mark.parametrize("kernel", on_every_backend(KERNELS, ("full", "fused")))
def test_nothing_to_attend_to(kernel):
    layer = built(self_attention(attention_kernel=kernel))
    x = normal(BATCH, LENGTH, WIDTH)
    keep = lengths_mask([7, 0, 3], LENGTH)
    dense = np.ones((BATCH, LENGTH, LENGTH), bool)
    dense[2, 1] = False
    masks = {"padding_mask": keep, "attention_mask": dense}
    output, scores = layer(x, **masks, return_attention_scores=True)
    bias = array(layer._projections.output.bias)
    for found in (array(output), array(layer(x, **masks))):
        np.testing.assert_array_equal(found[1], np.broadcast_to(bias, found[1].shape))
        np.testing.assert_array_equal(found[2, 1], bias)
        assert np.abs(found[0] - bias).min(-1).max() > 0
        assert np.isfinite(found).all()
    assert_equal(array(scores)[1], np.zeros((HEADS, LENGTH, LENGTH)))
    assert_equal(array(scores)[2, :, 1], np.zeros((HEADS, LENGTH)))
    assert_close(array(scores)[0].sum(-1), np.ones((HEADS, LENGTH)))
    [gradient] = gradients(lambda x: layer(x, **masks) ** 2, x)
    assert np.isfinite(gradient).all()
    assert_equal(gradient[1], np.zeros((LENGTH, WIDTH)))
    assert np.abs(gradient[0]).max() > 0


@pytest.mark.parametrize("kernel", ["full", "fused"])
def test_a_step_over_a_batch_that_is_all_padding_keeps_weights_finite(kernel):
    x = normal(BATCH, LENGTH, WIDTH)
    inputs = keras.Input((None, WIDTH)), keras.Input((None,), dtype="bool")
    layer = encoder(attention=self_attention(attention_kernel=kernel))
    model = keras.Model(inputs, layer(inputs[0], padding_mask=inputs[1]))
    model.compile("sgd", "mse", jit_compile=False)
    model.train_on_batch([x, np.zeros((BATCH, LENGTH), bool)], x)
    assert all(np.isfinite(array(weight)).all() for weight in layer.weights)


def masked(mask_zero=True, seed=0):
    """Ids, and an embedding whose output carries the implicit mask."""
    ids = np.random.default_rng(seed).integers(1, 9, (BATCH, LENGTH))
    ids = np.where(lengths_mask([7, 4, 2], LENGTH), ids, 0).astype("int32")
    embedding = keras.layers.Embedding(9, WIDTH, mask_zero=mask_zero)
    embedding.build()
    return ids, fill_weights(embedding, seed)


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("make", [encoder, decoder])
def test_implicit_mask_does_what_the_explicit_one_does(make, normalize_first):
    ids, embedding = masked()
    name = "decoder_padding_mask" if make is decoder else "padding_mask"
    blocks = [built(make(normalize_first=normalize_first)) for _ in range(2)]
    implicit, explicit = embedding(ids), array(embedding(ids))
    unmasked = explicit
    for block in blocks:
        implicit = block(implicit)
        explicit = block(array(explicit), **{name: ids != 0})
        unmasked = block(array(unmasked))
    assert_equal(implicit, explicit)
    differs = np.abs(array(unmasked) - array(explicit)).max(-1)
    if make is encoder:  # In a causal decoder padding at the end changes nothing.
        assert differs[1:, 0].min() > 1e-3


def test_implicit_masks_of_both_sequences():
    (target, embed_target), (source, embed_source) = masked(), masked(seed=1)
    source = np.ascontiguousarray(source[:, ::-1])
    block = built(decoder(), (BATCH, LENGTH, WIDTH), (BATCH, LENGTH, WIDTH))
    implicit = block(embed_target(target), embed_source(source))
    x, context = array(embed_target(target)), array(embed_source(source))
    explicit = block(
        x, context, decoder_padding_mask=target != 0, encoder_padding_mask=source != 0
    )
    assert_equal(implicit, explicit)
    without = block(x, context, decoder_padding_mask=target != 0)
    assert np.abs(array(implicit) - array(without))[1:].max() > 1e-3


@pytest.mark.parametrize("functional", [False, True])
def test_an_explicit_mask_takes_the_place_of_the_implicit_one(functional):
    ids, embedding = masked()
    other = lengths_mask([2, 7, 5], LENGTH)
    layer = built(self_attention())
    expected = layer(array(embedding(ids)), padding_mask=other)
    if functional:
        inputs = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="bool")
        outputs = layer(embedding(inputs[0]), padding_mask=inputs[1])
        found = keras.Model(inputs, outputs)([ids, other])
    else:
        found = layer(embedding(ids), padding_mask=other)
    assert_equal(found, expected)
    # An attention mask, in contrast, is joined with the implicit one.
    dense = np.broadcast_to(other[:, None], (BATCH, LENGTH, LENGTH))
    joined = layer(embedding(ids), attention_mask=dense)
    both = layer(array(embedding(ids)), padding_mask=other & (ids != 0))
    assert_equal(joined, both)


def test_implicit_masks_of_the_three_attention_layers():
    ids, embedding = masked()
    x, keep = embedding(ids), ids != 0
    plain, query = array(x), normal(BATCH, 5, WIDTH)
    for layer, arguments in (
        (layers.MultiHeadAttention(HEADS), (query,)),
        (layers.CrossAttention(HEADS), (query,)),
        (layers.MultiHeadSelfAttention(HEADS), ()),
    ):
        expected = layer(*arguments, plain, padding_mask=keep)
        assert_equal(layer(*arguments, x), expected)
        assert np.abs(array(layer(*arguments, plain)) - array(expected)).max() > 1e-3
    # The query's own mask is not the keys'.
    layer = layers.CrossAttention(HEADS)
    assert_equal(layer(x, query), layer(plain, query))


def test_integer_masks_are_bool():
    layer = built(self_attention())
    x = normal(BATCH, LENGTH, WIDTH)
    keep = lengths_mask([7, 4, 2], LENGTH)
    dense = np.tril(np.ones((BATCH, LENGTH, LENGTH), bool))
    expected = layer(x, padding_mask=keep, attention_mask=dense)
    for dtype in ("int32", "uint8", "int64"):
        found = layer(
            x, padding_mask=keep.astype(dtype), attention_mask=dense.astype(dtype)
        )
        assert_equal(found, expected)


BAD_MASKS = {
    "float padding": ("padding", (None, LENGTH), "float32", "bool"),
    "float dense": ("attention", (None, LENGTH, LENGTH), "float16", "bool"),
    "padding rank": ("padding", (None, LENGTH, LENGTH), "bool", "shape"),
    "padding vector": ("padding", (None,), "bool", "shape"),
    "dense rank": ("attention", (None,), "bool", "shape"),
    "dense rank 5": ("attention", (None, 1, 1, LENGTH, LENGTH), "bool", "shape"),
}


@pytest.mark.every_backend
@pytest.mark.parametrize("bad", BAD_MASKS)
@pytest.mark.parametrize("make", [self_attention, encoder, decoder])
def test_bad_masks_are_refused(make, bad):
    kind, shape, dtype, expected = BAD_MASKS[bad]
    name = f"decoder_{kind}_mask" if make is decoder else f"{kind}_mask"
    message = f"`{kind}_mask` must be .*{expected}.*Received: {kind}_mask of"
    symbol = keras.Input(batch_shape=shape, dtype=dtype)
    x, mask = normal(BATCH, LENGTH, WIDTH), np.ones([s or BATCH for s in shape], dtype)
    with pytest.raises(ValueError, match=message):
        make()(keras.Input((LENGTH, WIDTH)), **{name: symbol})
    with pytest.raises(ValueError, match=message):
        make()(x, **{name: mask})


@pytest.mark.parametrize("kind", ["padding", "attention"])
def test_bad_masks_of_the_context_are_refused(kind):
    x, context = keras.Input((LENGTH, WIDTH)), keras.Input((5, WIDTH))
    mask = keras.Input((5, 5, 5, 5), dtype="bool")
    with pytest.raises(ValueError, match=f"`{kind}_mask` must be of shape"):
        decoder()(x, context, **{f"encoder_{kind}_mask": mask})
    with pytest.raises(ValueError, match=f"`{kind}_mask` must be of shape"):
        layers.CrossAttention(HEADS)(x, context, **{f"{kind}_mask": mask})


BAD_ARGUMENTS = {
    "no heads": (self_attention, {"key_dim": 0}, "`key_dim` must be a positive int"),
    "float": (self_attention, {"key_dim": 2.5}, "Received: key_dim=2.5"),
    "rate": (self_attention, {"dropout": 1.0}, "number in \\[0, 1\\).*dropout=1.0"),
    "kernel": (
        self_attention,
        {"attention_kernel": "flash"},
        "one of .*'fused'.*Received: attention_kernel='flash'",
    ),
    "block rate": (encoder, {"dropout": -0.1}, "Received: dropout=-0.1"),
    "normalization": (decoder, {"normalization": "batch"}, "'rms_norm'.*'batch'"),
}


@pytest.mark.parametrize("bad", BAD_ARGUMENTS)
def test_bad_arguments_are_refused(bad):
    make, arguments, message = BAD_ARGUMENTS[bad]
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize("make", [self_attention, encoder, decoder])
def test_heads_must_divide_the_width(make):
    with pytest.raises(ValueError, match="multiple of `num_heads`.*width=16"):
        make().build((None, None, 16))
    with pytest.raises(ValueError, match=r"num_heads=3"):
        make()(keras.Input((None, 16)))


@pytest.mark.parametrize("shape", [(2, 15), (2, 3, 4, 15)])
def test_rank_of_the_inputs(shape):
    with pytest.raises(ValueError, match=r"\(batch, length, features\).*Received"):
        self_attention()(np.zeros(shape, "float32"))


def test_keys_and_values_must_be_of_one_length():
    layer = layers.MultiHeadAttention(HEADS)
    with pytest.raises(ValueError, match="the same length"):
        layer(normal(2, 3, 15), normal(2, 4, 15), normal(2, 5, 15))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("padding_mask", (BATCH, LENGTH + 1)),
        ("padding_mask", (BATCH, 1)),
        ("attention_mask", (BATCH, LENGTH + 1, LENGTH)),
        ("attention_mask", (BATCH, LENGTH, LENGTH - 1)),
        ("attention_mask", (BATCH, HEADS, 1, LENGTH)),
    ],
)
@pytest.mark.parametrize("make", [self_attention, encoder])
def test_a_mask_of_another_length_is_refused(make, name, shape):
    """Neither cropped nor stretched; eagerly, and while a model is stacked."""
    layer = built(make())
    received = f"`{name}` must be as long.*Received: {name} of shape"
    with pytest.raises(ValueError, match=received):
        layer(normal(BATCH, LENGTH, WIDTH), **{name: np.ones(shape, bool)})
    mask = keras.Input(batch_shape=shape, dtype="bool")
    with pytest.raises(ValueError, match=received):
        layer(keras.Input((LENGTH, WIDTH)), **{name: mask})


@pytest.mark.parametrize("part", ["attention", "feed_forward", "cross_attention"])
@pytest.mark.parametrize("bad", ["x", 3, keras.layers.Dense])
def test_a_part_of_a_block_is_a_layer(part, bad):
    with pytest.raises(ValueError, match=f"`{part}` must be a keras.layers.Layer"):
        decoder(**{part: bad})


def test_an_unknown_width_is_refused():
    with pytest.raises(ValueError, match="last axis.*must be known.*shape"):
        self_attention()(keras.Input((LENGTH, None)))


def test_root_mean_square_norm_lets_the_mask_pass():
    """Keras warns where a layer would lose it, and warnings are errors here."""
    ids = np.array([[5, 3, 0], [1, 2, 4]])
    block = encoder(normalization="rms_norm", normalize_first=True)
    x = keras.layers.Embedding(6, WIDTH, mask_zero=True)(ids)
    cropped = block(keras.ops.convert_to_tensor(array(x)[:1, :2]))
    assert_close(block(x)[:1, :2], cropped)
