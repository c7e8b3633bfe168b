"""Weight decay that excludes biases, normalization and embeddings."""

import keras
import numpy as np
import pytest
from tensors import array

from keras_attn import models, training

SIZES = dict(num_layers=1, hidden_dim=8, intermediate_dim=6, num_heads=2, dropout=0.0)
MODELS = {
    "translator": lambda: models.transformer_translator(11, 13, **SIZES),
    "language model": lambda: models.causal_language_model(11, max_length=5, **SIZES),
    "vision": lambda: models.vision_transformer(4, 3, patch_size=2, **SIZES),
}


@pytest.mark.every_backend
@pytest.mark.parametrize("name", MODELS)
def test_only_weight_matrices_decay(name):
    """With gradients of zero a step of SGD is the weight decay."""
    model = MODELS[name]()
    optimizer = keras.optimizers.SGD(1.0, weight_decay=0.5)
    count = training.exclude_from_weight_decay(optimizer, model)
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    gradients = [keras.ops.zeros(w.shape) for w in model.trainable_variables]
    optimizer.apply(gradients, model.trainable_variables)
    kept = {w.path for w in model.trainable_variables if np.all(array(w) == 1.0)}
    assert len(kept) == count
    assert kept == {
        w.path
        for w in model.trainable_variables
        if w.path.endswith(("bias", "gamma", "beta", "/embeddings"))
    }
    decayed = {w.path for w in model.trainable_variables} - kept
    assert all(path.endswith(("kernel", "reverse_embeddings")) for path in decayed)
    assert sum(path.endswith("query/kernel") for path in decayed) >= 1


def test_wrong_order():
    model = MODELS["vision"]()
    optimizer = keras.optimizers.AdamW()
    optimizer.build(model.trainable_variables)
    with pytest.raises(ValueError, match="must not be built.*Received: optimizer="):
        training.exclude_from_weight_decay(optimizer, model)
    with pytest.raises(ValueError, match="must be built.*Received: model="):
        training.exclude_from_weight_decay(
            keras.optimizers.AdamW(), keras.Sequential([keras.layers.Dense(2)])
        )
