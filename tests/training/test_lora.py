"""Low-rank adapters: what trains, what comes out of files, and the way off again."""

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


def adapters(paths):
    return {f"{path}/lora_kernel_{x}" for path in paths for x in "ab"}


def with_adapters(model, seed=5, **kwargs):
    """The model with adapters that are not zeros."""
    training.enable_lora(model, 2, alpha=6, **kwargs)
    for i, weight in enumerate(w for w in model.weights if "lora" in w.name):
        weight.assign(0.3 * normal(*weight.shape, seed=seed + i))
    return model


@pytest.mark.every_backend
def test_trained_saved_trained_on_and_merged(tmp_path):
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

    again = saved_and_loaded(model, tmp_path)
    assert_equal(again(ids), model(ids))
    assert {w.path for w in again.trainable_weights} == trained
    saved = values(again)
    losses += fitted(again)
    assert losses[3] < losses[2] < losses[1] < losses[0]
    assert changed(again, saved) == trained

    expected = array(again(ids))
    training.merge_lora(again)
    assert_close(again(ids), expected)
    assert set(values(again)) == set(before)
    assert len(again.trainable_weights) == len(again.weights)
    assert changed(again, before) == {
        *(f"{path}/kernel" for path in ADAPTED),
        *("logits/kernel", "logits/bias"),
    }


def test_taken_off_the_model_is_what_it_was():
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


def test_the_kernel_of_before_comes_out_of_the_file(tmp_path):
    model = classifier()
    before = values(model)
    with_adapters(model)
    again = saved_and_loaded(model, tmp_path)
    training.remove_lora(again)
    assert changed(again, before) == set()


@pytest.mark.parametrize("file", ["model.keras", "model.weights.h5"])
def test_weights_alone(file, tmp_path):
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


def test_a_file_without_adapters_lets_them_begin(tmp_path):
    model = classifier()
    model.save_weights(tmp_path / "model.weights.h5")
    again = with_adapters(classifier(seed=1))
    again.load_weights(tmp_path / "model.weights.h5")
    ids, _ = data()
    assert_close(again(ids), model(ids))
    before = values(again)
    fitted(compiled(again))
    assert {path for path in changed(again, before) if "kernel_b" in path} == {
        path for path in adapters(ADAPTED) if path.endswith("_b")
    }


def test_half_precision_is_not_rounded_in_files_and_merging(tmp_path):
    inputs = keras.Input((None, 8))
    layer = layers.MultiHeadSelfAttention(2, dtype="mixed_bfloat16", name="attention")
    model = keras.Model(inputs, layer(inputs))
    fill_weights(model)
    before = values(model)
    with_adapters(model)
    kernel = before["attention/query/kernel"]
    found = {w.path: array(w) for w in model.weights}
    product = np.tensordot(
        found["attention/query/lora_kernel_a"],
        found["attention/query/lora_kernel_b"],
        1,
    )
    model.save_weights(tmp_path / "model.weights.h5")
    training.merge_lora(model)
    merged = values(model)["attention/query/kernel"]
    np.testing.assert_allclose(merged, kernel + 3 * product, atol=1e-6)
    model.load_weights(tmp_path / "model.weights.h5")
    assert_equal(values(model)["attention/query/kernel"], merged)


@pytest.mark.parametrize("names", [("first", "second"), ("same", "same")])
def test_attention_that_a_block_was_given(names, tmp_path):
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
    again = saved_and_loaded(model, tmp_path)
    assert_equal(again(inputs), model(inputs))
    assert [w.name for w in again.trainable_weights] == [
        *("lora_kernel_a", "lora_kernel_b") * 2
    ]


def test_generation_uses_the_adapters_of_now():
    model = models.causal_language_model(
        VOCABULARY, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
    )
    fill_weights(model)

    def generated():
        found = decoding.generate(
            model, {"target": [[2, 5]]}, max_new_tokens=12, jit_compile=False
        )
        return array(found["token_ids"]).tolist(), array(found["scores"])

    plain = generated()
    with_adapters(model, pattern="self_attention|feed_forward")
    adapted = generated()
    assert adapted[0] != plain[0]
    training.merge_lora(model)
    merged = generated()
    assert merged[0] == adapted[0]
    assert_close(merged[1], adapted[1])


@pytest.mark.parametrize("function", [training.merge_lora, training.remove_lora])
def test_what_was_traced_with_adapters_goes_on_without(function):
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
def test_bad_arguments(arguments, match):
    model = classifier()
    with pytest.raises(ValueError, match=match):
        training.enable_lora(model, **arguments)
    assert set(values(model)) == set(values(classifier()))


def test_models_that_cannot_have_adapters():
    model = with_adapters(classifier())
    with pytest.raises(ValueError, match="no adapters yet.*encoder_0"):
        training.enable_lora(model, 2)
    with pytest.raises(ValueError, match="pruned: `merge_lora`.*encoder_0/self_att"):
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
def test_layers_that_cannot_have_adapters(arguments, match):
    inputs = keras.Input((None, 4))
    attention = layers.MultiHeadSelfAttention(2, name="attention", **arguments)
    model = keras.Model(inputs, attention(inputs))
    with pytest.raises(ValueError, match=match):
        training.enable_lora(model, 2)
