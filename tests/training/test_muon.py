"""Muon on the kernels of attention, compared with Keras's on matrices."""

import keras
import numpy as np
import pytest
from tensors import array, normal

from keras_attn import models, training

SIZES = dict(num_layers=1, hidden_dim=8, intermediate_dim=6, num_heads=2, dropout=0.0)
MODELS = {
    "translator": lambda: models.transformer_translator(11, 13, **SIZES),
    "language model": lambda: models.causal_language_model(11, max_length=5, **SIZES),
    "classifier": lambda: models.text_classifier(11, 3, max_length=5, **SIZES),
    "vision": lambda: models.vision_transformer(4, 3, patch_size=2, **SIZES),
}


def after_steps(optimizer, value, gradients, name="kernel"):
    variable = keras.Variable(value, name=name)
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
    return array(variable)


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "shape, matrix",
    [
        ((8, 2, 4), (8, 8)),  # query
        ((2, 4, 8), (8, 8)),  # output
        ((8, 1, 2), (8, 2)),  # key of grouped heads
        ((8, 6), (8, 6)),
    ],
)
def test_a_kernel_is_a_matrix(shape, matrix):
    value, gradients = normal(*shape), [normal(*shape, seed=i) for i in range(3)]
    found = after_steps(training.Muon(0.1), value, gradients)
    expected = after_steps(
        keras.optimizers.Muon(0.1),
        value.reshape(matrix),
        [gradient.reshape(matrix) for gradient in gradients],
    )
    np.testing.assert_allclose(found.reshape(matrix), expected, rtol=1e-4, atol=1e-5)


def test_an_update_is_nearly_orthogonal():
    """All singular values of the update are near that of an orthogonal matrix."""
    value = np.zeros((8, 2, 4), "float32")
    update = -after_steps(
        training.Muon(1.0, weight_decay=0.0), value, [normal(8, 2, 4)]
    )
    singular = np.linalg.svd(update.reshape(8, 8), compute_uv=False)
    scale = 0.2 * np.sqrt(8)
    assert (singular > 0.5 * scale).all() and (singular < 1.3 * scale).all()


@pytest.mark.parametrize("name", MODELS)
def test_which_variables_are_matrices(name):
    model = MODELS[name]()
    optimizer = training.Muon.for_model(model, 0.1)
    optimizer.build(model.trainable_variables)
    matrices = {
        variable.path
        for variable, velocity in zip(
            model.trainable_variables, optimizer.adam_velocities
        )
        if velocity is None
    }
    heads = [x for x in model.layers if isinstance(x, keras.layers.Dense)][-1:]
    outputs = {variable.path for x in heads for variable in x.trainable_variables}
    assert matrices == {
        variable.path
        for variable in model.trainable_variables
        if variable.path.endswith("kernel")
        and variable.path not in outputs
        and len(variable.shape) < 4  # the convolution that embeds patches
    }
    assert len(matrices) >= 6


def test_it_is_saved(tmp_path):
    model = MODELS["classifier"]()
    optimizer = training.Muon.for_model(model, 0.1, momentum=0.5)
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert type(loaded) is training.Muon
    assert loaded.get_config() == optimizer.get_config()


def test_a_model_that_is_not_functional():
    model = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="Functional"):
        training.Muon.for_model(model)
