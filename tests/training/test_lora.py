"""Low-rank adapters: training, saving, merging and removal."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from fine_tuned import (
    VOCABULARY,
    changed,
    classifier,
    compiled,
    data,
    fitted,
    saved_and_loaded,
    values,
)
from tensors import array, assert_close, assert_equal, fill_weights, normal

from keras_attn import decoding, inspection, layers, models, training

ADAPTED = [
    f"encoder_{i}/self_attention/{name}" for i in (0, 1) for name in ("query", "value")
]


def adapters(paths: Iterable[str]) -> set[str]:
    return {f"{path}/lora_kernel_{x}" for path in paths for x in "ab"}


def with_adapters(model: keras.Model, seed: int = 5, **kwargs: Any) -> keras.Model:
    """Add adapters with random values to a model."""
    training.enable_lora(model, 2, alpha=6, **kwargs)
    for i, weight in enumerate(w for w in model.weights if "lora" in w.name):
        weight.assign(0.3 * normal(*weight.shape, seed=seed + i))
    return model


@pytest.mark.slow
@pytest.mark.every_backend
def test_train_save_resume_and_merge(tmp_path: Path) -> None:
    model = classifier()
    ids, _ = data()
    plain, before = array(model(ids)), values(model)
    paths = training.enable_lora(model, 2, alpha=6, also_train="^logits$")
    assert paths == ADAPTED
    assert_equal(model(ids), plain)
    compiled(model, keras.optimizers.Adam(0.02))
    losses = fitted(model)
    trained = adapters(ADAPTED) | {"logits/kernel", "logits/bias"}
    assert changed(model, before) == trained

    loaded = saved_and_loaded(model, tmp_path)
    assert_equal(loaded(ids), model(ids))
    assert {w.path for w in loaded.trainable_weights} == trained
    saved = values(loaded)
    losses += fitted(loaded)
    assert losses[3] < losses[2] < losses[1] < losses[0]
    assert changed(loaded, saved) == trained

    expected = array(loaded(ids))
    training.merge_lora(loaded)
    assert_close(loaded(ids), expected)
    assert set(values(loaded)) == set(before)
    assert len(loaded.trainable_weights) == len(loaded.weights)
    assert changed(loaded, before) == {
        *(f"{path}/kernel" for path in ADAPTED),
        *("logits/kernel", "logits/bias"),
    }


@pytest.mark.slow
def test_remove_restores_the_model() -> None:
    model = classifier()
    ids, _ = data()
    plain, before = array(model(ids)), values(model)
    with_adapters(model)
    assert np.abs(array(model(ids)) - plain).max() > 1e-3
    model.predict(ids, verbose=0)
    training.remove_lora(model)
    assert_equal(model(ids), plain)
    assert_close(model.predict(ids, verbose=0), plain)
    assert changed(model, before) == set() and set(values(model)) == set(before)
    assert len(model.trainable_weights) == len(model.weights)
    training.enable_lora(model, 1)
    assert_equal(model(ids), plain)


@pytest.mark.slow
def test_saved_model_contains_the_original_kernel(tmp_path: Path) -> None:
    model = classifier()
    before = values(model)
    with_adapters(model)
    loaded = saved_and_loaded(model, tmp_path)
    training.remove_lora(loaded)
    assert changed(loaded, before) == set()


@pytest.mark.parametrize("file", ["model.keras", "model.weights.h5"])
def test_loading_weights_with_and_without_adapters(file: str, tmp_path: Path) -> None:
    model = with_adapters(classifier())
    ids, _ = data()
    path = tmp_path / file
    model.save(path) if file.endswith(".keras") else model.save_weights(path)
    same, without = classifier(seed=1), classifier(seed=1)
    training.enable_lora(same, 2, alpha=6)
    same.load_weights(path)
    assert_equal(same(ids), model(ids))
    assert set(values(same)) == set(values(model))
    assert changed(same, values(model)) == set()
    without.load_weights(path)
    assert_close(without(ids), model(ids))
    other = classifier()
    training.enable_lora(other, 2)
    with pytest.raises(ValueError, match=r"rank 2 and alpha 2.*alpha=6"):
        other.load_weights(path)


def test_loading_weights_without_adapters_resets_them(tmp_path: Path) -> None:
    model = classifier()
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = with_adapters(classifier(seed=1))
    loaded.load_weights(tmp_path / "model.weights.h5")
    ids, _ = data()
    assert_close(loaded(ids), model(ids))
    before = values(loaded)
    fitted(compiled(loaded))
    assert {path for path in changed(loaded, before) if "kernel_b" in path} == {
        path for path in adapters(ADAPTED) if path.endswith("_b")
    }


@pytest.mark.slow
def test_half_precision_kernels_are_saved_and_merged_in_float32(tmp_path: Path) -> None:
    inputs = keras.Input((None, 8))
    layer = layers.MultiHeadSelfAttention(2, dtype="mixed_bfloat16", name="attention")
    model = keras.Model(inputs, layer(inputs))
    fill_weights(model)
    before = values(model)
    with_adapters(model)
    kernel = before["attention/query/kernel"]
    weights = {w.path: array(w) for w in model.weights}
    product = np.tensordot(
        weights["attention/query/lora_kernel_a"],
        weights["attention/query/lora_kernel_b"],
        1,
    )
    model.save_weights(tmp_path / "model.weights.h5")
    training.merge_lora(model)
    merged = values(model)["attention/query/kernel"]
    np.testing.assert_allclose(merged, kernel + 3 * product, atol=1e-6)
    model.load_weights(tmp_path / "model.weights.h5")
    assert_equal(values(model)["attention/query/kernel"], merged)


@pytest.mark.parametrize("names", [("first", "second"), ("same", "same")])
def test_attention_passed_to_a_block(names: tuple[str, str], tmp_path: Path) -> None:
    source, target = keras.Input((None, 4)), keras.Input((None, 4))
    block = layers.TransformerDecoder(
        6,
        2,
        attention=layers.MultiHeadSelfAttention(2, name=names[0]),
        cross_attention=layers.CrossAttention(2, name=names[1]),
        name="block",
    )
    model = keras.Model([target, source], block(target, source))
    with_adapters(model, pattern="query$")
    inputs = [normal(2, 3, 4), normal(2, 5, 4, seed=1)]
    loaded = saved_and_loaded(model, tmp_path)
    assert_equal(loaded(inputs), model(inputs))
    assert [w.name for w in loaded.trainable_weights] == [
        *("lora_kernel_a", "lora_kernel_b") * 2
    ]


@pytest.mark.slow
def test_generation_uses_the_current_adapters() -> None:
    model = models.causal_language_model(
        VOCABULARY, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
    )
    fill_weights(model)

    def generated() -> tuple[list[Any], np.ndarray]:
        output = decoding.generate(
            model, {"token_ids": [[2, 5]]}, max_new_tokens=12, jit_compile=False
        )
        return array(output["token_ids"]).tolist(), array(output["scores"])

    plain = generated()
    with_adapters(model, pattern="self_attention|feed_forward")
    adapted = generated()
    assert adapted[0] != plain[0]
    training.merge_lora(model)
    merged = generated()
    assert merged[0] == adapted[0]
    assert_close(merged[1], adapted[1])


@pytest.mark.slow
@pytest.mark.parametrize("function", [training.merge_lora, training.remove_lora])
def test_functions_traced_with_adapters_work_after_removal(
    function: Callable[..., Any],
) -> None:
    model = with_adapters(classifier())
    ids, _ = data()
    tf = pytest.importorskip("tensorflow")
    traced = tf.function(lambda ids: model(ids), autograph=False)
    traced(ids)
    function(model)
    assert_close(traced(ids), model(ids))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"rank": 0}, "rank=0"),
        ({"rank": 2, "pattern": "querry"}, "encoder_0/self_attention/query.*'querry'"),
        ({"rank": 2, "also_train": "^logit$"}, "also_train='\\^logit\\$'"),
        ({"rank": 2, "pattern": "^logits$"}, "layer 'logits', a Dense of keras"),
        ({"rank": 2, "pattern": "embedding"}, "layer 'embedding', a TokenEmbedding"),
    ],
)
def test_invalid_arguments_raise(arguments: Any, match: str) -> None:
    model = classifier()
    with pytest.raises(ValueError, match=match):
        training.enable_lora(model, **arguments)
    assert set(values(model)) == set(values(classifier()))


@pytest.mark.slow
def test_unsupported_models_raise() -> None:
    model = with_adapters(classifier())
    with pytest.raises(ValueError, match="no adapters yet.*encoder_0"):
        training.enable_lora(model, 2)
    with pytest.raises(
        ValueError, match="pruned: call `merge_lora`.*encoder_0/self_att"
    ):
        inspection.prune_heads(model, {"encoder_0": [0]})
    training.remove_lora(model)
    for function in (training.merge_lora, training.remove_lora):
        with pytest.raises(ValueError, match="must have adapters"):
            function(model)
    with pytest.raises(ValueError, match="must be built"):
        training.enable_lora(keras.Sequential([keras.layers.Dense(2)]), 2)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"dtype": "int8_from_float32"}, "attention/query', quantized to int8"),
        ({"kernel_constraint": "non_neg"}, "attention/query', constraint"),
    ],
)
def test_unsupported_layers_raise(arguments: Any, match: str) -> None:
    inputs = keras.Input((None, 4))
    attention = layers.MultiHeadSelfAttention(2, name="attention", **arguments)
    model = keras.Model(inputs, attention(inputs))
    with pytest.raises(ValueError, match=match):
        training.enable_lora(model, 2)
