"""Random `transformers` models, and copying their weights into keras_attn layers."""

import numpy as np
import pytest


def random_model(class_name, config_class_name, **config):
    """Return a `transformers` model with random values in all of its weights."""
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
    """Return the weights of a PyTorch model by name, as NumPy arrays."""
    return {name: value.numpy() for name, value in model.state_dict().items()}


def copy_dense(layer, weights, *names):
    """Copy weights and biases of the linear and normalization modules `names`."""
    values = [weights[f"{n}.{part}"] for n in names for part in ("weight", "bias")]
    assert len(values) == len(layer.weights)
    for weight, value in zip(layer.weights, values):
        weight.assign(value.T.reshape(weight.shape))  # PyTorch: (outputs, inputs)


def copy_table(layer, table):
    """Assign an array to the only weight of a layer."""
    (weight,) = layer.weights
    weight.assign(np.reshape(table, weight.shape))
