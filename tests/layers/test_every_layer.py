"""What holds for every layer of the library, checked on all of `harness.CASES`."""

import inspect
import json
import re

import keras
import numpy as np
import pytest
from harness import CASES, FEW, SIZES
from tensors import array, assert_close, fill_weights

from keras_attn import layers


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def constructor_arguments(layer_class):
    """Names of all arguments, those that go on to a base class included."""
    names = set()
    for cls in layer_class.__mro__:
        if cls is keras.layers.Layer:
            break
        if "__init__" not in vars(cls):
            continue
        parameters = inspect.signature(cls.__init__).parameters.values()
        names.update(p.name for p in parameters if p.kind not in VARIABLE)
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return names - {"self"}


def test_every_layer_is_in_the_harness():
    made = {type(case.make()) for case in CASES.values()}
    public = {getattr(layers, name) for name in layers.__all__}
    assert made == public - {layers.deep_norm, layers.Residual}  # Not layers.


def test_every_argument_is_an_attribute_and_in_the_config(case):
    layer = case.make()
    names = constructor_arguments(type(layer))
    if isinstance(layer, keras.layers.Embedding):  # Spelled our way.
        names -= {"input_dim", "output_dim", "mask_zero"}
        names -= {"weights", "lora_rank", "lora_alpha", "quantization_config"}
    assert {"num_heads", "inputs", "vocabulary_size"} - names  # there are some at all
    assert [name for name in names if not hasattr(layer, name)] == []
    assert [name for name in names if name not in layer.get_config()] == []


def test_some_case_sets_every_argument():
    """So that the round trips below see each argument away from its default."""
    unseen = []
    for layer_class in {type(case.make()) for case in CASES.values()}:
        cases = [c.make() for c in CASES.values() if type(c.make()) is layer_class]
        for name, parameter in inspect.signature(layer_class).parameters.items():
            default = parameter.default
            if parameter.kind in VARIABLE or default is parameter.empty:
                continue
            configs = [layer.get_config()[name] for layer in cases]
            if all(config == default for config in configs):
                unseen.append((layer_class.__name__, name))
    assert unseen == []


def test_config_round_trip(case):
    layer = case.make(name="some_name")
    config = layer.get_config()
    copy = type(layer).from_config(config)
    assert copy.get_config() == config
    assert copy.name == "some_name"
    assert set(dir(copy)) == set(dir(layer))


def test_json_round_trip(case):
    layer = case.make()
    text = json.dumps(keras.saving.serialize_keras_object(layer))
    copy = keras.saving.deserialize_keras_object(json.loads(text))
    assert type(copy) is type(layer)
    assert copy.get_config() == layer.get_config()
    assert json.loads(text)["registered_name"].startswith("keras_attn>")


def test_weights_exist_after_build_alone(case):
    built, called = case.make(name="layer"), case.make(name="layer")
    built.build(*case.shapes())
    case.call(called, case.arrays())
    assert built.built
    # Keras numbers the states of its random generators, so weights alone have names.
    assert [w.path for w in built.weights] == [w.path for w in called.weights]
    assert [w.shape for w in built.variables] == [w.shape for w in called.variables]
    calls_again = case.call(built, case.arrays())
    assert len(built.variables) == len(called.variables)
    assert np.isfinite(array(calls_again)).all()


def test_children_have_names_of_their_own(case):
    layer, other = case.make(name="layer"), case.make(name="layer")
    for each in (layer, other):
        each.build(*case.shapes())
    for parent, twin in zip(layer._flatten_layers(), other._flatten_layers()):
        children = {id(child): child.name for child in parent._layers}.values()
        assert len(set(children)) == len(children)
        assert [name for name in children if re.search(r"_\d+$", name)] == []
        assert [child.name for child in twin._layers] == [
            child.name for child in parent._layers
        ]
    paths = [weight.path for weight in layer.weights]
    assert len(set(paths)) == len(paths)


@pytest.mark.every_backend
def test_symbolic_shapes_equal_eager_ones(case):
    layer = case.make()
    symbols = case.symbols()
    output = case.call(layer, symbols)
    model = keras.Model(symbols, output)
    few = keras.backend.backend() == "jax"
    for sizes in [{}, {"B": 3, "T": 5, "S": 2}][few:]:
        arrays = case.arrays(**sizes)
        eager = case.call(layer, arrays)
        expected = tuple(
            size if known is None else known
            for size, known in zip(eager.shape, output.shape)
        )
        assert tuple(eager.shape) == expected
        assert len(output.shape) == len(eager.shape)
        unknown = [axis in "BTS" for axis in next(iter(case.inputs.values()))]
        assert [size is None for size in output.shape[:2]] == unknown[:2]
        assert keras.backend.standardize_dtype(eager.dtype) == output.dtype
        assert_close(model(arrays), eager, 1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].scores])
def test_symbolic_scores_have_the_shapes_of_eager_ones(name):
    case = CASES[name]
    layer = case.make()
    symbolic = layer(**case.symbols(), return_attention_scores=True)
    eager = layer(**case.arrays(), return_attention_scores=True)
    keras.tree.assert_same_structure(symbolic, eager)
    sizes = {"T": SIZES["T"], "S": SIZES["S"]}
    for spec, tensor in zip(keras.tree.flatten(symbolic), keras.tree.flatten(eager)):
        assert spec.shape[0] is None and tensor.shape[0] == SIZES["B"]
        for known, size in zip(spec.shape, tensor.shape):
            assert known == size or (known is None and size in (2, *sizes.values()))
        assert keras.backend.standardize_dtype(tensor.dtype) == spec.dtype


def test_output_shape_from_shapes(case):
    layer = case.make()
    if case.has_ids:
        assert tuple(layer.compute_output_shape((2, 7))) == (2, 7, 5)
        return
    shapes = case.shapes()
    output = case.call(layer, case.arrays())
    found = layer.compute_output_shape(*shapes)
    if isinstance(found[0], tuple):  # of several outputs, the one that is called
        found = found[0]
    assert tuple(found) == tuple(output.shape)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_dtype_policies(case, policy):
    layer = case.make(dtype=policy)
    output = case.call(layer, case.arrays())
    compute_dtype = keras.dtype_policies.get(policy).compute_dtype
    assert keras.backend.standardize_dtype(output.dtype) == compute_dtype
    assert case.call(layer, case.symbols()).dtype == compute_dtype
    assert {weight.dtype for weight in layer.weights} <= {"float32"}
    for child in layer._flatten_layers():
        assert child.compute_dtype == compute_dtype, child.name
    assert np.isfinite(array(keras.ops.cast(output, "float32"))).all()


def test_half_precision_is_near_full(case):
    full, half = case.make(), case.make(dtype="mixed_bfloat16")
    arrays = case.arrays()
    case.call(full, arrays), case.call(half, arrays)
    fill_weights(full), fill_weights(half)
    expected = array(case.call(full, arrays))
    found = array(keras.ops.cast(case.call(half, arrays), "float32"))
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.every_backend
def test_fit_moves_every_weight(request, case):
    layer = case.make()
    inputs = case.symbols()
    # The layer after it gives a layer without weights something to train.
    outputs = case.call(layer, inputs)
    if outputs.shape[-1] is None:  # of scores, whose second axis is of heads
        outputs = keras.ops.swapaxes(outputs, 1, -1)
    outputs = keras.layers.Dense(3)(outputs)
    model = keras.Model(inputs, outputs)
    # A step of plain gradient descent moves a weight if and only if it has a gradient.
    eagerly = request.node.callspec.params["case"] not in FEW
    compiles = keras.backend.backend() == "jax"  # One program, or many small ones.
    model.compile(
        keras.optimizers.SGD(1.0), "mse", jit_compile=compiles, run_eagerly=eagerly
    )
    before = [array(weight) for weight in layer.trainable_weights]
    arrays = case.arrays()
    targets = np.random.default_rng(1).normal(size=model(arrays).shape)
    history = model.fit(arrays, targets, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    for weight, old in zip(layer.trainable_weights, before):
        assert np.isfinite(array(weight)).all(), weight.path
        # A bias of all keys moves all scores of a query alike: its gradient is zero.
        if not re.search(r"(^|/)key/bias$", weight.path):
            assert np.abs(array(weight) - old).max() > 1e-7, weight.path


def test_layer_can_be_frozen(case):
    layer = case.make()
    layer.trainable = False
    case.call(layer, case.arrays())
    assert layer.trainable_weights == []
