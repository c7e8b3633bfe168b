"""Reading and replaying the graph of a Functional model."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn._graph import functional


@pytest.fixture(scope="module")
def two_inputs():
    """A model that applies one Dense layer to both inputs, `a` and `b`."""
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    shared = keras.layers.Dense(4, name="shared")
    first, second = shared(a), shared(b)
    total = ops.add(ops.multiply(first, 2.0), second)
    output = keras.layers.Dense(3, name="head")(total)
    model = keras.Model([a, b], output)
    return model, {
        "a": a,
        "b": b,
        "first": first,
        "second": second,
        "total": total,
        "output": output,
    }


def replay(model, values):
    """Compute the outputs of a model by replaying its calls."""
    values = dict(values)
    for call in functional.read_graph(model).calls:
        args, kwargs = functional.map_tensors(
            lambda tensor: values[id(tensor)], (call.args, call.kwargs)
        )
        outputs = keras.tree.flatten(call.operation(*args, **kwargs))
        values.update(zip(map(id, call.outputs), outputs))
    return [values[id(tensor)] for tensor in model.outputs]


def test_calls_are_complete_and_in_an_order_to_replay(two_inputs):
    model, _ = two_inputs
    names = [call.operation.name for call in functional.read_graph(model).calls]
    assert names.count("shared") == 2
    assert len(names) == 5
    assert names[-1] == "head"
    arrays = [np.full((2, 4), value, "float32") for value in (1, 3)]
    values = {id(t): ops.convert_to_tensor(x) for t, x in zip(model.inputs, arrays)}
    (output,) = replay(model, values)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(output), ops.convert_to_numpy(model(arrays))
    )


def test_unused_calls_are_not_in_the_graph():
    a = keras.Input((4,))
    shared = keras.layers.Dense(4, name="shared")
    used = shared(a)
    shared(used)  # not part of the model below
    assert len(functional.read_graph(keras.Model(a, used)).calls) == 1


def test_calls_of_a_sequential_model():
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)]
    )
    calls = functional.read_graph(model).calls
    assert [call.operation for call in calls] == model.layers
    assert calls[0].inputs == [model.inputs[0]]


def test_nested_models_are_flattened():
    """A nested model is called twice, and has a layer named like an outer one."""
    x = keras.Input((4,))
    inner = keras.Model(x, keras.layers.Dense(4, name="dense")(ops.tanh(x)))
    sequential = keras.Sequential([keras.Input((4,)), inner, keras.layers.Dense(3)])
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    first = inner(keras.layers.Dense(4, name="dense")(a))
    model = keras.Model({"a": a, "b": b}, sequential(ops.add(first, inner(b))))
    flat = functional.read_graph(model)
    operations = [call.operation for call in flat.calls]
    assert not any(isinstance(operation, keras.Model) for operation in operations)
    assert operations.count(inner.get_layer("dense")) == 3
    assert flat.inputs == tuple(model.inputs)
    # Keras accepts the flat graph only if all names in it are distinct.
    rebuilt = keras.Model({"a": a, "b": b}, flat.outputs[0])
    data = {
        name: np.full((2, 4), value, "float32") for name, value in zip("ab", (1, 3))
    }
    np.testing.assert_allclose(
        ops.convert_to_numpy(rebuilt(data)),
        ops.convert_to_numpy(model(data)),
        rtol=1e-6,
    )


def test_unused_name():
    assert functional.unused_name("x", set()) == "x"
    assert functional.unused_name("x", {"x", "x_1"}) == "x_2"


def test_min_attribute():
    x = keras.Input((4,))
    layers = [keras.layers.Dense(units) for units in (5, 3, 4)]
    calls = functional.read_graph(keras.Sequential([x, *layers])).calls
    assert functional.min_attribute(calls, "units") == 3
    assert functional.min_attribute(calls, "rate") is None
    excluded = dataclasses.replace(calls[-1], kwargs={"training": True})
    assert functional.min_attribute([excluded], "units", unless="training") is None


def test_arguments_of_a_call_by_name():
    query, value = keras.Input((5, 8)), keras.Input((7, 8))
    layer = keras.layers.MultiHeadAttention(2, 4)
    model = keras.Model([query, value], layer(query, value=value, use_causal_mask=True))
    (call,) = functional.read_graph(model).calls
    arguments = call.arguments()
    assert arguments["query"] is query
    assert arguments["value"] is value
    assert arguments["use_causal_mask"] is True
    assert "attention_mask" not in arguments
    assert call.inputs == [query, value]
    assert call.accepts("return_attention_scores")
    assert not call.accepts("start_index")


def test_descendants_of_one_input(two_inputs):
    model, tensors = two_inputs
    ids = functional.descendants(functional.read_graph(model).calls, [tensors["a"]])
    names = {name for name, tensor in tensors.items() if id(tensor) in ids}
    assert names == {"a", "first", "total", "output"}


def test_boundary_tensors_are_inputs_of_dependent_calls(two_inputs):
    model, tensors = two_inputs
    calls = functional.read_graph(model).calls
    dependent = functional.descendants(calls, [tensors["a"]])
    assert functional.boundary_tensors(calls, dependent) == [tensors["second"]]
    everything = functional.descendants(calls, model.inputs)
    assert functional.boundary_tensors(calls, everything) == []


def test_boundary_tensors_are_distinct():
    a, b = keras.Input((4,)), keras.Input((4,))
    fixed = keras.layers.Dense(4)(b)
    output = ops.multiply(ops.add(a, fixed), fixed)
    calls = functional.read_graph(keras.Model([a, b], output)).calls
    dependent = functional.descendants(calls, [a])
    assert functional.boundary_tensors(calls, dependent) == [fixed]


def test_map_tensors_of_a_nested_structure():
    a, b = keras.Input((4,)), keras.Input((5,))
    structure = {"x": [a, 3, None], "y": (b, "word", {"z": a})}
    mapped = functional.map_tensors(lambda tensor: tensor.shape[-1], structure)
    assert mapped == {"x": [4, 3, None], "y": (5, "word", {"z": 4})}
    assert functional.tensors_in(structure) == [a, b, a]


def test_check_functional_raises_for_other_models(two_inputs):
    functional.check_functional(two_inputs[0])

    class Subclassed(keras.Model):
        def call(self, inputs):
            return inputs

    for bad in (
        Subclassed(),
        keras.Sequential([keras.layers.Dense(2)]),
        keras.layers.Dense(2),
        None,
    ):
        with pytest.raises(ValueError, match="Functional.*Received: model="):
            functional.check_functional(bad)


def test_input_structure_is_nested_as_in_a_call(two_inputs):
    model, tensors = two_inputs
    assert functional.input_structure(model) == [tensors["a"], tensors["b"]]
    a = keras.Input((4,), name="a")
    assert functional.input_structure(keras.Model({"a": a}, ops.add(a, 1))) == {"a": a}
    assert functional.input_structure(keras.Model(a, ops.add(a, 1))) is a
    sequential = keras.Sequential([a, keras.layers.Dense(2)])
    assert functional.input_structure(sequential) is sequential.inputs[0]
