"""The private names of Keras that we use, and the versions they are known to hold for.

When this file fails on a new Keras: look at `keras_attn/_keras_internals.py`, which
is the only other place to change, then add the version to `KNOWN`.
"""

import keras
import numpy as np
import pytest
from tensors import assert_equal

from keras_attn import _keras_internals as internals

KNOWN = {"3.15"}


def test_this_keras_is_known():
    version = ".".join(keras.__version__.split(".")[:2])
    assert version in KNOWN, (
        f"Keras {keras.__version__} is none of those that keras_attn's use of private "
        f"names was checked with ({', '.join(sorted(KNOWN))}). Run the whole suite; "
        "if it passes, add the version to KNOWN in tests/test_keras_internals.py."
    )


def test_the_face_of_the_file():
    assert sorted(internals.__all__) == [
        "implicit_mask",
        "initial_values",
        "inner_layers",
        "is_decayed",
        "is_functional",
        "own_weights",
        "recorded_calls",
        "set_implicit_mask",
        "stored_kernel",
    ]


def test_a_mask_hangs_on_a_tensor():
    x, mask = keras.ops.ones((2, 3, 5)), keras.ops.ones((2, 3), dtype="bool")
    assert internals.implicit_mask(x) is None
    internals.set_implicit_mask(x, mask)
    assert internals.implicit_mask(x) is mask
    assert internals.implicit_mask(x + 1) is None  # Operations lose it, layers do not.
    assert_equal(internals.implicit_mask(keras.layers.Dropout(0.1)(x)), mask)


def test_a_masking_layer_hangs_one_eagerly_and_symbolically():
    embedding = keras.layers.Embedding(5, 3, mask_zero=True)
    ids = np.array([[1, 0], [2, 3]])
    assert_equal(internals.implicit_mask(embedding(ids)), ids != 0)
    mask = internals.implicit_mask(embedding(keras.Input((None,), dtype="int32")))
    assert isinstance(mask, keras.KerasTensor)
    assert mask.shape == (None, None) and mask.dtype == "bool"


def test_numpy_arrays_have_none():
    assert internals.implicit_mask(np.ones((2, 3))) is None


def model():
    x, y = keras.Input((3,), name="x"), keras.Input((3,), name="y")
    shared = keras.layers.Dense(3, name="shared")
    first = shared(x)
    second = shared(y)
    added = keras.ops.add(first, second)
    total = keras.layers.Concatenate(name="join")([added, first])
    return keras.Model({"x": x, "y": y}, keras.ops.multiply(total, 2.0))


def test_calls_are_recorded_in_an_order_to_replay():
    functional = model()
    calls = list(internals.recorded_calls(functional))
    names = [operation.name for operation, *_ in calls]
    assert len(names) == 5 and names.count("shared") == 2 and "join" in names
    known = {id(tensor) for tensor in functional.inputs}
    for _, args, kwargs, outputs in calls:
        leaves = keras.tree.flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, keras.KerasTensor)]
        assert tensors and all(id(tensor) in known for tensor in tensors)
        known.update(id(tensor) for tensor in outputs)
    assert all(id(tensor) in known for tensor in functional.outputs)


def test_a_replay_gives_what_the_model_gives():
    functional = model()
    data = {"x": np.ones((2, 3), "float32"), "y": 2 * np.ones((2, 3), "float32")}
    values = {
        id(t): keras.ops.convert_to_tensor(data[t.name]) for t in functional.inputs
    }

    def value(leaf):
        return values[id(leaf)] if isinstance(leaf, keras.KerasTensor) else leaf

    for operation, args, kwargs, outputs in internals.recorded_calls(functional):
        args, kwargs = keras.tree.map_structure(value, (args, kwargs))
        results = keras.tree.flatten(operation(*args, **kwargs))
        values.update(zip(map(id, outputs), results))
    assert_equal(values[id(functional.outputs[0])], functional(data))


def test_constants_and_options_of_a_call_are_kept():
    inputs = keras.Input((None, 4))
    layer = keras.layers.MultiHeadAttention(2, 2)
    recorded = keras.Model(inputs, layer(inputs, value=inputs, use_causal_mask=True))
    [(operation, args, kwargs, outputs)] = internals.recorded_calls(recorded)
    assert operation is layer and len(args) == 1 and len(outputs) == 1
    assert kwargs["use_causal_mask"] is True


def test_a_sequential_model_has_calls_as_well():
    sequential = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="d")])
    assert [c[0].name for c in internals.recorded_calls(sequential)] == ["d"]


def test_a_model_whose_call_is_its_graph():
    class Named(keras.Sequential):
        pass

    class Changed(keras.Sequential):
        def call(self, inputs, training=None, mask=None):
            return super().call(inputs) + 1.0

    layers = [keras.Input((3,)), keras.layers.Dense(2)]
    assert internals.is_functional(model())
    assert internals.is_functional(keras.Sequential(layers))
    assert internals.is_functional(Named(layers))
    assert not internals.is_functional(Changed(layers))
    assert not internals.is_functional(keras.Sequential([keras.layers.Dense(2)]))
    assert not internals.is_functional(layers[1])


def test_other_models_have_none():
    class Subclass(keras.Model):
        pass

    with pytest.raises(AttributeError):
        list(internals.recorded_calls(Subclass()))


class Twice(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = keras.layers.Dense(2, name="dense")
        self.second = keras.layers.Dense(3, name="dense")

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=())
        self.first.build(shape)
        self.second.build((None, 2))

    def call(self, inputs):
        return self.scale * self.second(self.first(inputs))


def test_the_layers_in_layers_and_their_own_weights():
    inputs = keras.Input((4,), name="inputs")
    inner = keras.Model(inputs, Twice(name="twice")(inputs), name="inner")
    outer = keras.Model(inputs, inner(inputs))
    found = dict(internals.inner_layers(outer))
    assert list(found) == [
        "inputs",
        "inner",
        "inner/inputs",
        "inner/twice",
        "inner/twice/dense",
        "inner/twice/dense_1",
    ]
    twice = found["inner/twice"]
    assert found["inner/twice/dense_1"] is twice.second
    assert internals.own_weights(twice) == [twice.scale]
    assert internals.own_weights(twice.first) == [twice.first.kernel, twice.first.bias]


@pytest.mark.parametrize("dense", ["Dense", "EinsumDense"])
def test_the_kernel_beside_adapters(dense):
    layer = (
        keras.layers.Dense(2)
        if dense == "Dense"
        else keras.layers.EinsumDense("ab,bc->ac", output_shape=2)
    )
    layer.build((None, 3))
    kernel = layer.kernel
    layer.enable_lora(1)
    assert internals.stored_kernel(layer) is kernel
    assert layer.kernel is not kernel and not kernel.trainable


def test_what_is_decayed():
    optimizer = keras.optimizers.AdamW(0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    bias, kernel = (keras.Variable(0.0, name=name) for name in ("bias", "kernel"))
    assert not internals.is_decayed(optimizer, bias)
    assert internals.is_decayed(optimizer, kernel)
