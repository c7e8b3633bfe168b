"""What each attention head is worth to a model's loss."""

import keras
import numpy as np
from keras import ops

from keras_attn._keras_internals import implicit_mask, set_implicit_mask
from keras_attn.inspection.multi_head_layers import multi_head_layers
from keras_attn.layers.attention.head_gates import head_gates

__all__ = ["head_importance"]


def head_importance(model, dataset, loss=None):
    """How much the loss depends on each head of each multi-head attention layer.

    What head h gives is multiplied by a gate of 1 before the output projection; its
    importance is the mean over examples of `|dL/dgate|`, with L the loss of that
    example alone: how the examples are batched makes no difference. The numbers are
    not normalized; the paper divides those of a layer by their Euclidean norm before
    it compares layers.

    Args:
        model: a Functional model with multi-head attention layers of this library in
            it, alone or in blocks.
        dataset: yields batches `(inputs, targets)` or `(inputs, targets,
            sample_weight)` of arrays or tensors: a `tf.data.Dataset`, a generator, a
            list. It is read once, to its end.
        loss: a `keras.losses.Loss`, its name, or a function of targets and outputs.
            Default: the one the model is compiled with. A model of several outputs
            needs a function here, which gets them as the model gives them.

    Returns:
        A dict from layer name, as `attention_maps` gives it, to NumPy floats `(N,)`.
        A layer that is called several times is in it once, by the name of its first
        call; a gate then holds for all its calls.

    Raises:
        ValueError: if `model` is not Functional, has no multi-head attention in it, or
            has no loss; if `dataset` is empty or without targets.

    Example:
        >>> model.compile(loss=MaskedCrossentropy())
        >>> importance = head_importance(model, validation_dataset.take(100))
        >>> importance["encoder_0"].argsort()[:4]  # the four least important heads
        array([5, 0, 3, 6])

    Reference:
        Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 4.1
        (https://arxiv.org/abs/1905.10650).
    """
    names = {}
    for name, layer in multi_head_layers(model).items():
        names.setdefault(layer, name)
    loss = _resolved(model, loss)

    def objective(gates, inputs, targets, weights):
        with head_gates(dict(zip(names, gates))):
            outputs = model(inputs, training=False)
        return _sum_of_losses(loss, targets, outputs, weights)

    gradients = _gradient(objective, model.variables)
    totals, examples = [0.0] * len(names), 0
    for batch in dataset:
        inputs, targets, weights = keras.tree.map_structure(
            lambda x: None if x is None else ops.convert_to_numpy(x),
            keras.utils.unpack_x_y_sample_weight(batch),
        )
        if targets is None:
            raise ValueError(
                "`dataset` must yield batches (inputs, targets) or (inputs, targets, "
                f"sample_weight). Received: a batch of {type(batch).__name__}"
            )
        rows = len(keras.tree.flatten(inputs)[0])
        ones = [np.ones((rows, layer.num_heads), "float32") for layer in names]
        found = gradients(ones, inputs, targets, weights)
        totals = [total + np.abs(x).sum(0) for total, x in zip(totals, found)]
        examples += rows
    if not examples:
        raise ValueError(
            f"`dataset` must have at least one example. Received: dataset={dataset!r}"
        )
    return dict(zip(names.values(), (total / examples for total in totals)))


def _resolved(model, loss):
    """The loss as a `keras.losses.Loss`."""
    given = getattr(model, "loss", None) if loss is None else loss
    if given is None or isinstance(given, (list, tuple, dict)):
        raise ValueError(
            "`loss` must be a loss, its name or a function; it can be left out for a "
            f"model that is compiled with one loss. Received: loss={given!r}"
        )
    given = keras.losses.get(given)
    return given if isinstance(given, keras.losses.Loss) else _Function(given)


class _Function(keras.losses.Loss):
    """A function of targets and outputs as a loss, as `compile` takes it."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, y_true, y_pred):
        return self.function(y_true, y_pred)


def _sum_of_losses(loss, targets, outputs, weights):
    """The losses of the examples, each computed alone, summed."""
    given = (targets, outputs, weights, implicit_mask(outputs))
    leaves = keras.tree.flatten(given)
    rows = len(leaves[0])
    split = [[x] * rows if x is None else ops.split(x, rows) for x in leaves]
    total = 0.0
    for example in zip(*split):
        target, output, weight, mask = keras.tree.pack_sequence_as(given, example)
        if mask is not None:  # Keras's losses look for it.
            set_implicit_mask(output, mask)
        total = total + ops.sum(loss(target, output, sample_weight=weight))
    return total


def _gradient(function, variables):
    """The gradient of `function(arrays, *data)`, a scalar, in each of `arrays`.

    Args:
        function: of a list of tensors, and of more that it takes as it comes.
        variables: the Keras variables it reads.

    Returns:
        A function of a list of NumPy arrays and of `data`, to a list of NumPy arrays.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def gradient(arrays, *data):
            tensors = [tf.constant(array) for array in arrays]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(tensors)
                total = function(tensors, *data)
            return tape.gradient(total, tensors, unconnected_gradients="zero")

    elif backend == "jax":
        import jax

        @jax.jit
        def with_values(values, arrays, data):
            with keras.StatelessScope(state_mapping=zip(variables, values)):
                return jax.grad(function)(arrays, *data)

        def gradient(arrays, *data):
            # The weights come in as arguments, or the program would hold a copy.
            return with_values([variable.value for variable in variables], arrays, data)

    else:
        import torch

        def gradient(arrays, *data):
            tensors = [ops.convert_to_tensor(x).requires_grad_() for x in arrays]
            return torch.autograd.grad(
                function(tensors, *data),
                tensors,
                allow_unused=True,
                materialize_grads=True,
            )

    return lambda *args: [ops.convert_to_numpy(x) for x in gradient(*args)]
