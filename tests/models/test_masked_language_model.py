"""`masked_language_model` and `text_classifier`, compared with `transformers`."""

import inspect

import keras
import numpy as np
import pytest
from tensors import array, assert_close, fill_weights, lengths_mask, normal
from torch_weights import copy_dense, copy_table, random_model, weights_of

from keras_attn.inspection import attention_maps
from keras_attn.models import masked_language_model, text_classifier
from keras_attn.training import MaskedCrossentropy

V, T = 19, 7
LENGTHS = [7, 4, 1]
SMALL = dict(
    vocabulary_size=V,
    num_layers=2,
    hidden_dim=6,
    intermediate_dim=11,
    num_heads=2,
    max_length=9,
)
IN_BLOCK = [
    *(f"attention.self.{part}" for part in ("query", "key", "value")),
    "attention.output.dense",
    "attention.output.LayerNorm",
    "output.LayerNorm",
    "intermediate.dense",
    "output.dense",
]


def token_ids(length=T):
    """Return three padded sequences."""
    ids = np.random.default_rng(0).integers(1, V, (3, T)) * lengths_mask(LENGTHS, T)
    return ids[:, :length].astype("int32")


def token_type_ids():
    return np.random.default_rng(1).integers(0, 2, (3, T)).astype("int32")


def model_inputs(model):
    if len(model.inputs) == 1:
        return token_ids()
    return {"token_ids": token_ids(), "token_type_ids": token_type_ids()}


@pytest.fixture(scope="module")
def model():
    return fill_weights(masked_language_model(**SMALL))


@pytest.fixture(scope="module")
def classifiers():
    return {
        pooling: fill_weights(text_classifier(**SMALL, num_classes=5, pooling=pooling))
        for pooling in ("first", "mean")
    }


@pytest.fixture(scope="module")
def bert():
    return random_model(
        "BertForMaskedLM",
        "BertConfig",
        vocab_size=V,
        num_hidden_layers=2,
        hidden_size=6,
        intermediate_size=11,
        num_attention_heads=2,
        max_position_embeddings=9,
        type_vocab_size=2,
    )


def run_bert(bert, with_token_types=True):
    """Return the hidden states `(3, T, 6)` and the logits `(3, T, V)` of `bert`."""
    import torch

    types = token_type_ids() if with_token_types else 0 * token_type_ids()
    with torch.no_grad():
        outputs = bert(
            input_ids=torch.tensor(token_ids()).long(),
            attention_mask=torch.tensor(token_ids() != 0).long(),
            token_type_ids=torch.tensor(types).long(),
            output_hidden_states=True,
        )
    return outputs.hidden_states[-1].numpy(), outputs.logits.numpy()


def copy_encoder(model, weights):
    start = "bert.embeddings."
    copy_table(model.get_layer("embedding"), weights[f"{start}word_embeddings.weight"])
    positions = weights[f"{start}position_embeddings.weight"]
    token_types = weights[f"{start}token_type_embeddings.weight"]
    if len(model.inputs) > 1:
        copy_table(model.get_layer("token_type"), token_types)
    else:
        positions = positions + token_types[0]  # BERT adds type 0 to all positions
    copy_table(model.get_layer("position"), positions)
    copy_dense(model.get_layer("norm"), weights, f"{start}LayerNorm")
    for i in range(2):
        names = [f"bert.encoder.layer.{i}.{name}" for name in IN_BLOCK]
        copy_dense(model.get_layer(f"encoder_{i}"), weights, *names)


@pytest.mark.parametrize("num_token_types", [None, 2])
def test_logits_of_transformers(bert, num_token_types):
    weights = weights_of(bert)
    model = masked_language_model(**SMALL, num_token_types=num_token_types)
    copy_encoder(model, weights)
    head = "cls.predictions."
    copy_dense(model.get_layer("head"), weights, f"{head}transform.dense")
    copy_dense(model.get_layer("head_norm"), weights, f"{head}transform.LayerNorm")
    copy_table(model.get_layer("head_bias"), weights[f"{head}bias"])
    if num_token_types:
        assert model.count_params() == bert.num_parameters()
    _, expected = run_bert(bert, with_token_types=num_token_types is not None)
    assert np.abs(expected).max() > 0.3
    assert_close(model(model_inputs(model)), expected, 1e-4)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_classifier_logits_from_the_hidden_states_of_transformers(bert, pooling):
    model = text_classifier(**SMALL, num_classes=5, pooling=pooling, num_token_types=2)
    copy_encoder(model, weights_of(bert))
    kernel, bias = normal(6, 5, seed=2), normal(5, seed=3)
    model.get_layer("logits").set_weights([kernel, bias])
    hidden_states, _ = run_bert(bert)
    is_token = (token_ids() != 0)[:, :, None]
    pooled = {
        "first": hidden_states[:, 0],
        "mean": (hidden_states * is_token).sum(axis=1) / is_token.sum(axis=1),
    }
    assert_close(model(model_inputs(model)), pooled[pooling] @ kernel + bias, 1e-4)


@pytest.mark.on_pytorch
def test_padding_does_not_change_the_outputs(model, classifiers):
    for i, length in enumerate(LENGTHS):
        unpadded = token_ids()[i : i + 1, :length]
        assert_close(model(token_ids())[i, :length], model(unpadded)[0])
        for classifier in classifiers.values():
            assert_close(classifier(token_ids())[i], classifier(unpadded)[0])


@pytest.mark.on_pytorch
def test_each_token_attends_to_all_others(model):
    before = array(model(token_ids()))
    for position in range(T):
        changed = token_ids()
        changed[0, position] = changed[0, position] % (V - 1) + 1
        difference = np.abs(array(model(changed)) - before).max(axis=-1)
        assert difference[0].min() > 1e-5
        assert difference[1:].max() == 0


@pytest.mark.on_pytorch
@pytest.mark.parametrize("num_token_types", [None, 2])
def test_attention_maps(num_token_types):
    options = {**SMALL, "num_token_types": num_token_types}
    for model in (
        masked_language_model(**options),
        text_classifier(**options, num_classes=5, pooling="first"),
        text_classifier(**options, num_classes=5, pooling="mean"),
    ):
        inputs = {"token_ids": token_ids(), "token_type_ids": token_type_ids()}
        maps = attention_maps(fill_weights(model), inputs)
        assert maps.keys() == {"encoder_0", "encoder_1"}
        for weights in maps.values():
            assert weights.shape == (3, 2, T, T)
            assert_close(weights.sum(axis=-1), np.ones((3, 2, T)))
            assert (weights[2, :, :, 1:] == 0).all()
            assert weights[0].std() > 1e-3


@pytest.mark.slow
@pytest.mark.every_backend
def test_training_lowers_the_loss():
    """One token in four is replaced by a mask token; in the paper, one in seven."""
    mask_token = V - 1
    ids = np.random.default_rng(0).integers(1, mask_token, (8, T)).astype("int32")
    is_masked = np.arange(8 * T).reshape(8, T) % 4 == 0
    keras.utils.set_random_seed(0)
    model = masked_language_model(**{**SMALL, "num_layers": 1, "dropout": 0.0})
    jit = keras.backend.backend() == "jax"  # without jit, JAX runs each operation alone
    model.compile(keras.optimizers.Adam(3e-2), MaskedCrossentropy(), jit_compile=jit)
    losses = model.fit(
        np.where(is_masked, mask_token, ids),
        np.where(is_masked, ids, 0),
        epochs=12,
        verbose=0,
    ).history["loss"]
    assert losses[0] == pytest.approx(np.log(V), rel=0.4)
    assert losses[-1] < 0.8 * losses[0]


def test_classifier_takes_the_encoder_of_a_language_model(model, classifiers):
    hidden_states = []
    for copy in (model, text_classifier(**SMALL, num_classes=5)):
        for layer in copy.layers:
            if layer.name in ("embedding", "position", "norm", "encoder_0"):
                layer.set_weights(model.get_layer(layer.name).get_weights())
        first_block = keras.Model(copy.input, copy.get_layer("encoder_0").output)
        hidden_states.append(first_block(token_ids()))
    assert_close(*hidden_states, 1e-6)


def test_inputs_and_outputs(model, classifiers):
    assert model.input.name == "token_ids" and model.input.dtype == "int32"
    assert model.input_shape == (None, None)
    assert model.output_shape == (None, None, V)
    assert classifiers["first"].output_shape == (None, 5)
    with_types = masked_language_model(**SMALL, num_token_types=2)
    assert with_types.input.keys() == {"token_ids", "token_type_ids"}
    assert {tensor.dtype for tensor in with_types.inputs} == {"int32"}


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (masked_language_model, {}),
        (masked_language_model, {"num_token_types": 2}),
        (text_classifier, {"num_classes": 5}),
        (text_classifier, {"num_classes": 5, "num_token_types": 2, "pooling": "mean"}),
    ],
)
def test_saved_and_loaded(tmp_path, make, options):
    model = fill_weights(make(**SMALL, **options))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    inputs = model_inputs(model)
    assert_close(loaded(inputs), model(inputs), 1e-6)
    assert loaded.name == make.__name__


@pytest.mark.parametrize("make", [masked_language_model, text_classifier])
def test_dtype_and_name(make):
    options = {"num_classes": 5} if make is text_classifier else {}
    model = make(**SMALL, **options, dtype="mixed_bfloat16", name="mine")
    assert model.name == "mine"
    with_weights = [layer for layer in model.layers if layer.weights]
    assert {layer.compute_dtype for layer in with_weights} == {"bfloat16"}
    assert {weight.dtype for weight in model.weights} == {"float32"}


@pytest.mark.parametrize("make", [masked_language_model, text_classifier])
def test_defaults_are_those_of_the_base_model_of_the_paper(make):
    parameters = inspect.signature(make).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in parameters}
    expected = dict(
        num_layers=12,
        hidden_dim=768,
        intermediate_dim=3072,
        num_heads=12,
        max_length=512,
        dropout=0.1,
        activation="gelu",
    )
    assert defaults | expected == defaults


BAD = [
    ("vocabulary_size", 0),
    ("num_layers", 0),
    ("hidden_dim", -6),
    ("intermediate_dim", 0),
    ("num_heads", 4),
    ("max_length", 0),
    ("max_length", None),
    ("num_token_types", 0),
    ("dropout", 1.0),
    ("num_classes", 0),
    ("pooling", "token"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match="Received: |Invalid value received"):
        text_classifier(**{**SMALL, "num_classes": 5, name: value})
    if name not in ("num_classes", "pooling"):
        with pytest.raises(ValueError, match="Received: |Invalid value received"):
            masked_language_model(**{**SMALL, name: value})


def test_sequence_longer_than_max_length(model):
    with pytest.raises(ValueError, match="for 9 positions.*Received: 10 tokens"):
        model(np.ones((1, 10), "int32"))


def test_mean_of_no_tokens_is_zero():
    model = text_classifier(**SMALL, num_classes=5, pooling="mean")
    fill_weights(model)
    _, bias = model.get_layer("logits").weights
    assert_close(model(np.zeros((2, 3), "int32")), np.tile(array(bias), (2, 1)))
