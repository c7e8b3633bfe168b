"""Frozen weights do not change in any bit and stay frozen when loaded from a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from fine_tuned import changed, classifier, compiled, fitted, saved_and_loaded, values

from keras_attn import layers, models, training


def top_level_names(paths: Iterable[str]) -> set[str]:
    return {path.split("/")[0] for path in paths}


@pytest.mark.slow
@pytest.mark.on_pytorch
def test_only_the_last_blocks_and_the_head_are_trained(tmp_path: Path) -> None:
    model = classifier()
    before = values(model)
    training.freeze(model, trainable_blocks=1)
    compiled(model, keras.optimizers.Adam(0.01))
    losses = fitted(model)
    assert losses[-1] < losses[0]
    changed_paths = changed(model, before)
    assert top_level_names(changed_paths) == {"encoder_1", "logits"}
    assert changed_paths >= {w.path for w in model.get_layer("encoder_1").weights} - {
        "encoder_1/self_attention/key/bias"  # has a zero gradient
    }
    loaded = saved_and_loaded(model, tmp_path)
    loaded.fit(np.ones((2, 6), "int32"), np.zeros(2), verbose=0)
    assert top_level_names(changed(loaded, values(model))) == {"encoder_1", "logits"}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_number_of_trainable_blocks(count: int) -> None:
    model = classifier()
    training.freeze(model, count)
    trained = top_level_names(weight.path for weight in model.trainable_weights)
    assert trained == {"logits", *(f"encoder_{i}" for i in range(2 - count, 2))}
    training.unfreeze(model)
    assert len(model.trainable_weights) == len(model.weights)


@pytest.mark.slow
def test_compiled_functions_are_reset() -> None:
    model = compiled(classifier())
    fitted(model)
    training.freeze(model, 1)
    compiled(model)
    before = values(model)
    fitted(model)
    assert top_level_names(changed(model, before)) == {"encoder_1", "logits"}
    training.unfreeze(model)
    compiled(model)
    before = values(model)
    fitted(model)
    assert {"embedding", "encoder_0"} < top_level_names(changed(model, before))


def test_last_blocks_of_a_translation_model_are_the_decoder() -> None:
    model = models.transformer_translator(
        7, 9, num_layers=(5, 1), hidden_dim=4, intermediate_dim=6, num_heads=2
    )
    training.freeze(model, trainable_blocks=1)
    assert top_level_names(w.path for w in model.trainable_weights) == {"decoder_0"}
    # The target embedding follows the first of these blocks.
    training.freeze(model, trainable_blocks=5)
    assert top_level_names(w.path for w in model.trainable_weights) == {
        *("encoder_1", "encoder_2", "encoder_3", "encoder_4", "decoder_0")
    }
    with pytest.raises(ValueError, match="trainable_blocks=0.*decoder_0"):
        training.freeze(model)


def test_nested_blocks_and_blocks_by_name() -> None:
    inputs = keras.Input((None, 4))
    x = layers.TransformerEncoder(6, 2, name="first")(inputs)
    x = layers.TransformerEncoder(6, 2, name="second")(x)
    inner = keras.Model(inputs, x, name="inner")
    outside = keras.Input((None, 4))
    x = keras.layers.Dense(4, name="below")(outside)
    x = keras.layers.Dense(4, name="block_9")(inner(x))
    model = keras.Model(outside, keras.layers.Dense(2, name="above")(x))
    training.freeze(model, 1)
    trained = {w.path.split("/")[0] for w in model.trainable_weights}
    assert trained == {"second", "block_9", "above"}
    training.freeze(model, 1, blocks=r"block_\d+")
    assert {w.path.split("/")[0] for w in model.trainable_weights} == {
        *("block_9", "above")
    }


def test_layer_shared_with_a_frozen_block_is_frozen(tmp_path: Path) -> None:
    bias = layers.RelativePositionBias(name="shared")
    x = inputs = keras.Input((None, 4))
    for i in range(2):
        attention = layers.MultiHeadSelfAttention(2, position=bias, name="attention")
        x = layers.TransformerEncoder(6, 2, attention=attention, name=f"block_{i}")(x)
    model = keras.Model(inputs, x)
    training.freeze(model, 1)
    for each in (model, saved_and_loaded(model, tmp_path)):
        trained = {w.path for w in each.trainable_weights}
        assert trained and not [path for path in trained if "shared" in path]
        assert len(trained) == len(model.get_layer("block_1").weights) - 1


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"trainable_blocks": 3}, "from 0 to the number of blocks, 2.*=3"),
        ({"trainable_blocks": -1}, "trainable_blocks=-1"),
        ({"trainable_blocks": 1.5}, "trainable_blocks=1.5"),
        ({"blocks": "layer_.*"}, "must have Transformer blocks.*layer_"),
    ],
)
def test_invalid_arguments_raise(arguments: Any, match: str) -> None:
    model = classifier()
    with pytest.raises(ValueError, match=match):
        training.freeze(model, **arguments)
    assert len(model.trainable_weights) == len(model.weights)


def test_model_with_adapters_raises() -> None:
    model = classifier()
    training.enable_lora(model, 2)
    for function in (training.freeze, training.unfreeze):
        with pytest.raises(ValueError, match="no adapters.*encoder_0/self_attention"):
            function(model)
