"""The private names of Keras that the library uses, and the versions they work with.

If a test fails with a new Keras version, change `keras_attn/_keras_internals.py`, which
is the only module that uses private names, then add the version to `CHECKED_VERSIONS`.
"""

import keras
import numpy as np
import pytest
from tensors import assert_equal

from keras_attn import _keras_internals as internals

CHECKED_VERSIONS = {"3.15"}


def test_keras_version_is_checked():
    version = ".".join(keras.__version__.split(".")[:2])
    assert version in CHECKED_VERSIONS, (
        "keras_attn uses private names of Keras that were checked with the versions "
        f"{', '.join(sorted(CHECKED_VERSIONS))}, not with {keras.__version__}. Run all "
        "tests; if they pass, add the version to CHECKED_VERSIONS in "
        "tests/test_keras_internals.py."
    )


def test_public_names():
    assert sorted(internals.__all__) == [
        "Untracked",
        "deferred_initialization",
        "has_class_weight",
        "implicit_mask",
        "inner_layers",
        "is_decayed",
        "is_functional",
        "is_sharing_objects",
        "overridden_methods",
        "own_weights",
        "producing_call",
        "recorded_calls",
        "set_implicit_mask",
        "stored_kernel",
        "update_variables",
    ]


def test_implicit_mask_of_a_tensor():
    x, mask = keras.ops.ones((2, 3, 5)), keras.ops.ones((2, 3), dtype="bool")
    assert internals.implicit_mask(x) is None
    internals.set_implicit_mask(x, mask)
    assert internals.implicit_mask(x) is mask
    assert internals.implicit_mask(x + 1) is None  # Ops drop it, layers propagate it.
    assert_equal(internals.implicit_mask(keras.layers.Dropout(0.1)(x)), mask)


def test_a_masking_layer_sets_it_eagerly_and_symbolically():
    embedding = keras.layers.Embedding(5, 3, mask_zero=True)
    ids = np.array([[1, 0], [2, 3]])
    assert_equal(internals.implicit_mask(embedding(ids)), ids != 0)
    mask = internals.implicit_mask(embedding(keras.Input((None,), dtype="int32")))
    assert isinstance(mask, keras.KerasTensor)
    assert mask.shape == (None, None) and mask.dtype == "bool"


def test_numpy_arrays_have_no_implicit_mask():
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
    computed = {id(tensor) for tensor in functional.inputs}
    for _, args, kwargs, outputs in calls:
        leaves = keras.tree.flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, keras.KerasTensor)]
        assert tensors and all(id(tensor) in computed for tensor in tensors)
        computed.update(id(tensor) for tensor in outputs)
    assert all(id(tensor) in computed for tensor in functional.outputs)


def test_a_replay_computes_the_output_of_the_model():
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


def test_constant_arguments_of_a_call_are_recorded():
    inputs = keras.Input((None, 4))
    layer = keras.layers.MultiHeadAttention(2, 2)
    recorded = keras.Model(inputs, layer(inputs, value=inputs, use_causal_mask=True))
    [(operation, args, kwargs, outputs)] = internals.recorded_calls(recorded)
    assert operation is layer and len(args) == 1 and len(outputs) == 1
    assert kwargs["use_causal_mask"] is True


def test_the_call_that_computes_an_implicit_mask():
    ids = keras.Input((None,), dtype="int32")
    mask = internals.implicit_mask(keras.layers.Masking()(ids[..., None]))
    operation, args, kwargs, outputs = internals.producing_call(mask)
    assert len(outputs) == 1 and outputs[0] is mask
    assert any(isinstance(x, keras.KerasTensor) for x in (*args, *kwargs.values()))
    assert isinstance(operation, keras.Operation)


def test_recorded_calls_of_a_sequential_model():
    sequential = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="d")])
    assert [c[0].name for c in internals.recorded_calls(sequential)] == ["d"]


def test_is_functional():
    class Named(keras.Sequential):
        pass

    class Overridden(keras.Sequential):
        def call(self, inputs, training=None, mask=None):
            return super().call(inputs) + 1.0

    layers = [keras.Input((3,)), keras.layers.Dense(2)]
    assert internals.is_functional(model())
    assert internals.is_functional(keras.Sequential(layers))
    assert internals.is_functional(Named(layers))
    assert not internals.is_functional(Overridden(layers))
    assert not internals.is_functional(keras.Sequential([keras.layers.Dense(2)]))
    assert not internals.is_functional(layers[1])


def test_subclassed_models_have_no_recorded_calls():
    class Subclass(keras.Model):
        pass

    with pytest.raises(AttributeError):
        list(internals.recorded_calls(Subclass()))


class TwoDense(keras.layers.Layer):
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


def test_inner_layers_and_their_own_weights():
    inputs = keras.Input((4,), name="inputs")
    inner = keras.Model(inputs, TwoDense(name="two_dense")(inputs), name="inner")
    outer = keras.Model(inputs, inner(inputs))
    paths = dict(internals.inner_layers(outer))
    assert list(paths) == [
        "inputs",
        "inner",
        "inner/inputs",
        "inner/two_dense",
        "inner/two_dense/dense",
        "inner/two_dense/dense_1",
    ]
    two_dense = paths["inner/two_dense"]
    assert paths["inner/two_dense/dense_1"] is two_dense.second
    assert internals.own_weights(two_dense) == [two_dense.scale]
    assert internals.own_weights(two_dense.first) == [
        two_dense.first.kernel,
        two_dense.first.bias,
    ]


def test_untracked_layers_are_no_inner_layers():
    layer, inner = keras.layers.Layer(), keras.layers.Dense(2)
    layer.untracked = internals.Untracked(inner)
    assert layer.untracked.value is inner
    assert not list(internals.inner_layers(layer))


def test_is_sharing_objects_while_a_model_is_saved_and_loaded(tmp_path):
    recorded = []

    @keras.saving.register_keras_serializable("test_keras_internals")
    class Recorder(keras.layers.Layer):
        def get_config(self):
            recorded.append(internals.is_sharing_objects())
            return super().get_config()

        @classmethod
        def from_config(cls, config):
            recorded.append(internals.is_sharing_objects())
            return cls(**config)

    saved = keras.Sequential([keras.Input((3,)), Recorder()])
    saved.save(tmp_path / "model.keras")
    assert recorded and all(recorded)
    recorded.clear()
    keras.saving.load_model(tmp_path / "model.keras")
    assert recorded and all(recorded)
    assert not internals.is_sharing_objects()


@pytest.mark.parametrize("dense", ["Dense", "EinsumDense"])
def test_stored_kernel_excludes_adapters(dense):
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


def test_is_decayed():
    optimizer = keras.optimizers.AdamW(0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    bias, kernel = (keras.Variable(0.0, name=name) for name in ("bias", "kernel"))
    assert not internals.is_decayed(optimizer, bias)
    assert internals.is_decayed(optimizer, kernel)


@pytest.mark.parametrize("name", ["Adam", "Nadam", "Muon"])
def test_update_variables_is_a_step_of_the_optimizer(name):
    values = []
    for step in ("apply", "update_variables"):
        optimizer = getattr(keras.optimizers, name)(0.1, weight_decay=0.2)
        variable = keras.Variable(np.ones((2, 3), "float32"))
        gradient = keras.ops.ones((2, 3))
        optimizer.build([variable])
        if step == "apply":
            optimizer.apply([gradient])
        else:
            internals.update_variables(optimizer, [gradient], [variable])
        values.append(variable)
    assert_equal(*values)


def test_overridden_methods():
    class Scaled(keras.optimizers.SGD):
        def scale_loss(self, loss):
            return 2 * loss

    assert internals.overridden_methods(keras.optimizers.Nadam()) == []
    assert internals.overridden_methods(Scaled()) == ["scale_loss"]


@pytest.mark.parametrize("method", ["fit", "train_on_batch"])
def test_has_class_weight(method):
    recorded = []

    class Recorder(keras.losses.Loss):
        def call(self, y_true, y_pred):
            recorded.append(internals.has_class_weight())
            return keras.ops.mean(y_pred, axis=-1)

    x, y = np.ones((2, 3), "float32"), np.array([0, 1])
    for class_weight in (None, {0: 1.0, 1: 2.0}):
        functional = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        functional.compile("sgd", Recorder(), run_eagerly=True)
        recorded.clear()
        options = {"verbose": 0} if method == "fit" else {}
        getattr(functional, method)(x, y, class_weight=class_weight, **options)
        assert recorded[-1] is (class_weight is not None)
    recorded.clear()
    functional.evaluate(x, y, verbose=0)
    assert recorded and not any(recorded)
