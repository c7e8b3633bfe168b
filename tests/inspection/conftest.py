"""A translator to inspect. Tests must not change its weights."""

import keras
import numpy as np
import pytest
from tensors import fill_weights

from keras_attn.models import transformer_translator


@pytest.fixture(scope="session")
def translator() -> keras.Model:
    return fill_weights(
        transformer_translator(
            17, 13, num_layers=(1, 2), hidden_dim=9, intermediate_dim=12, num_heads=3
        )
    )


@pytest.fixture(scope="session")
def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    source, target = rng.integers(1, 17, (2, 7)), rng.integers(1, 13, (2, 5))
    source[0, 4:] = 0
    target[1, 3:] = 0
    return {"source": source.astype("int32"), "target": target.astype("int32")}
