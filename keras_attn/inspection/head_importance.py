"""Importance of attention heads for the loss of a model."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import keras
import numpy as np
from keras import ops

from keras_attn._keras_internals import implicit_mask, set_implicit_mask
from keras_attn._types import Model, Tensor
from keras_attn.inspection.multi_head_layers import multi_head_layers
from keras_attn.layers.attention.attention_layer import head_gates

__all__ = ["head_importance"]


def head_importance(
    model: Model,
    dataset: Iterable[Any],
    loss: keras.losses.Loss | Callable[[Any, Any], Tensor] | str | None = None,
) -> dict[str, np.ndarray]:
    """Compute the importance of each head of each multi-head attention layer.

    The output of a head is multiplied by a gate of 1 before the output projection. The
    importance of the head is the mean over examples of `|dL/dgate|`, where L is the
    loss of a single example, so the result does not depend on the batch size. The
    values are not normalized; to compare layers, the paper divides the values of a
    layer by their Euclidean norm.

    Args:
        model: A Functional model that contains multi-head attention layers of
            keras_attn, alone or in blocks.
        dataset: Iterable of batches `(inputs, targets)` or `(inputs, targets,
            sample_weight)` of arrays or tensors: a `tf.data.Dataset`, a generator or a
            list. It is iterated over once.
        loss: A `keras.losses.Loss`, the name of one, or a function of targets and
            outputs. Defaults to `None`, which selects the loss that the model is
            compiled with. For a model with several outputs, pass a function; it
            receives the outputs in the structure of the model.

    Returns:
        A dict that maps layer names, as returned by `attention_maps`, to float NumPy
        arrays of shape (N,). A layer that is called several times appears once, under
        the name of its first call, and its gates apply to all calls.

    Raises:
        ValueError: If `model` is not Functional, has no multi-head attention layer or
            no loss, or if `dataset` is empty or has no targets.

    Example:
        >>> import numpy as np
        >>> from keras_attn import inspection, models, training
        >>> model = models.transformer_translator(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> ids = {"source": np.array([[5, 6, 7]]), "target": np.array([[1, 9]])}
        >>> dataset = [(ids, np.array([[9, 2]]))]
        >>> loss = training.MaskedCrossentropy()
        >>> for name, importance in inspection.head_importance(
        ...     model, dataset, loss
        ... ).items():
        ...     print(name, importance.shape)
        encoder_0 (2,)
        decoder_0/self_attention (2,)
        decoder_0/cross_attention (2,)

    Reference:
        Michel et al., 2019, "Are Sixteen Heads Really Better than One?", section 4.1,
        https://arxiv.org/abs/1905.10650
    """
    names = {}
    for name, layer in multi_head_layers(model).items():
        names.setdefault(layer, name)
    loss_object = _as_loss(model, loss)

    def objective(
        gates: Sequence[Tensor], inputs: Any, targets: Any, weights: Any
    ) -> Tensor:
        with head_gates(dict(zip(names, gates))):
            outputs = model(inputs, training=False)
        return _sum_of_losses(loss_object, targets, outputs, weights)

    gradients_of = _gradient_function(objective, model.variables)
    totals: list[Any] = [0.0] * len(names)
    num_examples = 0
    for batch in dataset:
        inputs, targets, weights = cast(
            tuple[Any, Any, Any],
            keras.tree.map_structure(
                lambda x: None if x is None else ops.convert_to_numpy(x),
                keras.utils.unpack_x_y_sample_weight(batch),
            ),
        )
        if targets is None:
            raise ValueError(
                "`dataset` must yield batches (inputs, targets) or (inputs, targets, "
                f"sample_weight). Received: a batch of {type(batch).__name__}"
            )
        batch_size = len(keras.tree.flatten(inputs)[0])
        gates = [np.ones((batch_size, layer.num_heads), "float32") for layer in names]
        gradients = gradients_of(gates, inputs, targets, weights)
        totals = [total + np.abs(x).sum(0) for total, x in zip(totals, gradients)]
        num_examples += batch_size
    if not num_examples:
        raise ValueError(
            f"`dataset` must have at least one example. Received: dataset={dataset!r}"
        )
    return dict(zip(names.values(), (total / num_examples for total in totals)))


def _as_loss(model: keras.Model, loss: Any) -> keras.losses.Loss:
    """Return `loss`, or the loss of the model, as a `keras.losses.Loss`."""
    loss = getattr(model, "loss", None) if loss is None else loss
    if loss is None or isinstance(loss, (list, tuple, dict)):
        raise ValueError(
            "`loss` must be a loss, the name of one or a function. It may be omitted "
            f"if the model is compiled with a single loss. Received: loss={loss!r}"
        )
    loss = keras.losses.get(loss)
    return loss if isinstance(loss, keras.losses.Loss) else _FunctionLoss(loss)


class _FunctionLoss(keras.losses.Loss):
    """Loss that wraps a function of targets and outputs."""

    def __init__(self, function: Callable[[Any, Any], Tensor]) -> None:
        super().__init__()
        self.function = function

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return self.function(y_true, y_pred)


def _sum_of_losses(
    loss: keras.losses.Loss, targets: Any, outputs: Any, weights: Any
) -> Tensor:
    """Compute the loss of each example separately and return the sum."""
    batch = (targets, outputs, weights, implicit_mask(outputs))
    leaves = keras.tree.flatten(batch)
    batch_size = len(leaves[0])
    split = [
        [x] * batch_size if x is None else ops.split(x, batch_size) for x in leaves
    ]
    total = 0.0
    for example in zip(*split):
        target, output, weight, mask = keras.tree.pack_sequence_as(batch, example)
        if mask is not None:  # losses of Keras read the mask of the outputs
            set_implicit_mask(output, mask)
        example_loss = loss(target, output, sample_weight=weight)
        total = total + cast(Any, ops.sum(example_loss))
    return total


def _gradient_function(
    function: Callable[..., Tensor], variables: Sequence[keras.Variable]
) -> Callable[..., list[np.ndarray]]:
    """Return a function that computes the gradients of a scalar function.

    Args:
        function: Function `(tensors, *data)` that returns a scalar; it is
            differentiated with respect to each of the list `tensors`.
        variables: The Keras variables that the function reads.

    Returns:
        A function `(arrays, *data)` of a list of NumPy arrays and the same `data`. It
        returns a list of NumPy arrays, one gradient per array.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def gradient(arrays: Sequence[np.ndarray], *data: Any) -> Sequence[Any]:
            tensors = [tf.constant(array) for array in arrays]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(tensors)
                total = function(tensors, *data)
            zero = tf.UnconnectedGradients.ZERO
            return tape.gradient(total, tensors, unconnected_gradients=zero)

    elif backend == "jax":
        import jax

        @jax.jit
        def with_values(values: Sequence[Any], arrays: Sequence[Any], data: Any) -> Any:
            with keras.StatelessScope(state_mapping=zip(variables, values)):
                return jax.grad(function)(arrays, *data)

        def gradient(arrays: Sequence[np.ndarray], *data: Any) -> Sequence[Any]:
            # Pass the weights as arguments: the compiled program must not hold a copy.
            return with_values([variable.value for variable in variables], arrays, data)

    else:
        import torch

        def gradient(arrays: Sequence[np.ndarray], *data: Any) -> Sequence[Any]:
            tensors: list[Any] = [ops.convert_to_tensor(x) for x in arrays]
            tensors = [tensor.requires_grad_() for tensor in tensors]
            return torch.autograd.grad(
                function(tensors, *data),
                tensors,
                allow_unused=True,
                materialize_grads=True,
            )

    return lambda *args: [np.asarray(ops.convert_to_numpy(x)) for x in gradient(*args)]
