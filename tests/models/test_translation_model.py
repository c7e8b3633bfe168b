"""`transformer_translator`: parameter counts, outputs and saving."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops
from tensors import array, assert_close, assert_equal, fill_weights

from keras_attn.inspection import count_parameters
from keras_attn.models import transformer_translator

SMALL = dict(num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2)


def expected_counts(
    source, target, encoders, decoders, width, inner, matrices, normalize_first
):
    """Return the numbers of parameters by part, from the formulas of the paper."""
    attentions = encoders + 2 * decoders
    normalizations = 2 * encoders + 3 * decoders + 2 * normalize_first
    return {
        # One shared matrix, one per language, or a third one for the output.
        "embedding": width
        * {1: target, 2: source + target, 3: source + 2 * target}[matrices],
        "attention": attentions * 4 * (width * width + width),
        "feed_forward": (encoders + decoders) * (2 * width * inner + inner + width),
        "normalization": normalizations * 2 * width,
        "other": 0,
    }


@pytest.mark.parametrize("layers", [1, (2, 1)])
@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize(
    ("vocabularies", "share", "matrices"),
    [
        ((17, None), True, 1),
        ((17, 13), True, 2),
        ((17, None), False, 3),
        ((17, 13), False, 3),
        ((17, None), None, 1),
        ((17, 13), None, 3),
    ],
)
def test_parameter_counts(layers, normalize_first, vocabularies, share, matrices):
    model = transformer_translator(
        *vocabularies,
        **{**SMALL, "num_layers": layers},
        normalize_first=normalize_first,
        share_embeddings=share,
    )
    encoders, decoders = layers if isinstance(layers, tuple) else (layers, layers)
    source, target = vocabularies[0], vocabularies[1] or vocabularies[0]
    expected = expected_counts(
        source, target, encoders, decoders, 8, 12, matrices, normalize_first
    )
    counts = count_parameters(model)
    del counts["flops"]
    total = counts.pop("total")
    assert counts == expected
    assert total == sum(counts.values()) == model.count_params()


def test_base_and_big_have_the_parameters_of_the_paper():
    base = sum(expected_counts(37000, 37000, 6, 6, 512, 2048, 1, False).values())
    assert base == 63_082_496
    big = sum(expected_counts(37000, 37000, 6, 6, 1024, 4096, 1, False).values())
    assert big == pytest.approx(214e6, rel=0.01)
    assert base == pytest.approx(65e6, rel=0.03)
    assert big == pytest.approx(213e6, rel=0.01)


@pytest.fixture(scope="module")
def model():
    return fill_weights(transformer_translator(17, 13, share_embeddings=True, **SMALL))


def inputs(batch=2, source=5, target=4, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "source": rng.integers(1, 17, (batch, source)).astype("int32"),
        "target": rng.integers(1, 13, (batch, target)).astype("int32"),
    }


def test_inputs_and_outputs(model):
    assert isinstance(model, keras.Model)
    assert model.input.keys() == {"source", "target"}
    assert {tensor.shape for tensor in model.inputs} == {(None, None)}
    assert {t.dtype for t in model.inputs} == {"int32"}
    assert model.output_shape == (None, None, 13)
    assert model(inputs()).shape == (2, 4, 13)


def test_defaults_are_those_of_the_base_model_of_the_paper():
    """The defaults are read from the signature: the model would take 250 MB."""
    import inspect

    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(
            transformer_translator
        ).parameters.items()
    }
    expected = dict(
        num_layers=6,
        hidden_dim=512,
        intermediate_dim=2048,
        num_heads=8,
        dropout=0.1,
        normalize_first=False,
        activation="relu",
    )
    assert defaults | expected == defaults


def test_source_padding_does_not_change_the_outputs(model):
    arrays = inputs()
    longer = np.pad(arrays["source"], ((0, 0), (0, 3)))
    assert_close(model({**arrays, "source": longer}), model(arrays))


def test_tokens_do_not_attend_to_later_ones(model):
    arrays = inputs()
    target = arrays["target"].copy()
    target[:, 2] = target[:, 2] % 12 + 1
    logits, expected = model({**arrays, "target": target}), model(arrays)
    assert_equal(logits[:, :2], expected[:, :2])
    assert np.abs(array(logits - expected)[:, 2:]).min(axis=(0, 1)).max() > 0


def test_output_projection_is_the_target_embedding(model):
    embedding = model.get_layer("target_embedding")
    hidden = keras.Model(model.input, model.get_layer("decoder_0").output)
    vectors = array(hidden(inputs()))
    matrix = array(embedding.embeddings)
    assert_close(model(inputs()), vectors @ matrix.T)


def test_one_vocabulary_is_one_embedding():
    shared = transformer_translator(17, **SMALL)
    names = {layer.name for layer in shared.layers}
    assert "target_embedding" in names and "source_embedding" not in names
    ids = ops.ones((1, 3), dtype="int32")
    embedded = keras.Model(
        shared.input,
        [shared.get_layer(f"{side}_dropout").output for side in ("source", "target")],
    )
    assert_equal(*embedded({"source": ids, "target": ids}))


def test_each_pre_norm_stack_ends_with_a_normalization():
    pre = transformer_translator(17, **SMALL, normalize_first=True)
    arrays = {name: value % 17 for name, value in inputs().items()}
    for name in ("encoder_norm", "decoder_norm"):
        outputs = keras.Model(pre.input, pre.get_layer(name).output)(arrays)
        assert_close(ops.mean(outputs, axis=-1), np.zeros(outputs.shape[:2]), 1e-5)
    post = transformer_translator(17, **SMALL)
    assert not any(layer.name.endswith("coder_norm") for layer in post.layers)


@pytest.mark.parametrize("options", [{}, {"share_embeddings": False}])
def test_saved_and_loaded(tmp_path, options):
    model = fill_weights(
        transformer_translator(17, **SMALL, normalize_first=True, **options)
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    arrays = {name: value % 17 for name, value in inputs().items()}
    assert_close(loaded(arrays), model(arrays), 1e-6)
    assert loaded.count_params() == model.count_params()
    assert loaded.name == "transformer_translator"


def test_dtype_and_name():
    model = transformer_translator(17, **SMALL, dtype="mixed_bfloat16", name="mine")
    assert model.name == "mine"
    with_weights = [layer for layer in model.layers if layer.weights]
    assert {layer.compute_dtype for layer in with_weights} == {"bfloat16"}
    assert {weight.dtype for weight in model.weights} == {"float32"}


BAD = {
    "source_vocabulary_size": [0, -3, 2.5],
    "target_vocabulary_size": [0],
    "num_layers": [0, -1, (1, 0)],
    "hidden_dim": [0, 9],
    "intermediate_dim": [0],
    "num_heads": [0, 3],
    "dropout": [1.0, -0.1],
}


@pytest.mark.parametrize(
    ("name", "value"),
    list(itertools.chain(*([(n, v) for v in values] for n, values in BAD.items()))),
)
def test_bad_sizes(name, value):
    options = {"source_vocabulary_size": 17, **SMALL, name: value}
    with pytest.raises(ValueError, match="Received|Invalid value received"):
        transformer_translator(**options)
