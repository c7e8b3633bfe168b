"""Weights of `transformers` models, and how ours take them."""

import numpy as np
import pytest


def random_model(class_name, config_class_name, **config):
    """A model of `transformers` with random values in all of its weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, config_class_name)(**config)
    model = getattr(transformers, class_name)(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def weights_of(model):
    """Its weights by name, as NumPy arrays."""
    return {name: value.numpy() for name, value in model.state_dict().items()}


def copy_dense(layer, weights, *names):
    """Weights and biases of linear and normalization modules, in this order."""
    values = [weights[f"{n}.{part}"] for n in names for part in ("weight", "bias")]
    assert len(values) == len(layer.weights)
    for weight, value in zip(layer.weights, values):
        weight.assign(value.T.reshape(weight.shape))  # Theirs are (outputs, inputs).


def copy_table(layer, table):
    (weight,) = layer.weights
    weight.assign(np.reshape(table, weight.shape))
