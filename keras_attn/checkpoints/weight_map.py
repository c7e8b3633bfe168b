"""Mapping between the weights of a model and the tensors of a published model."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TypeAlias

import keras
import numpy as np

__all__ = [
    "Entry",
    "Flat",
    "Fused",
    "Identity",
    "Layout",
    "Matrix",
    "SkippedRows",
    "block_modules",
    "map_weights",
]

Arrays: TypeAlias = tuple[np.ndarray, ...]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


class Layout:
    """Conversion between the weights and the tensors of an `Entry`.

    Arrays and shapes are tuples in the order of the entry. This base class is the
    identity.
    """

    def tensor_shapes(self, weight_shapes: Shapes) -> Shapes:
        """Return the shapes of the tensors for weights of the given shapes."""
        return weight_shapes

    def rows_axis(self, shape: tuple[int, ...]) -> int | None:
        """Return the axis of a weight that corresponds to the rows of the tensor.

        None means that the tensor cannot be converted a few rows at a time.

        Args:
            shape: shape of the weight.
        """
        return 0

    def to_weights(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        """Return the weights, of the given shapes, for the tensors."""
        return tensors

    def to_tensors(self, weights: Arrays) -> Arrays:
        """Return the tensors for the weights."""
        return weights


Identity = Layout


@dataclasses.dataclass(frozen=True)
class Matrix(Layout):
    """A weight `(inputs..., outputs...)` that is stored as a matrix.

    Attributes:
        num_input_axes: number of leading axes of the weight that are inputs.
        transposed: whether the matrix is `(outputs, inputs)`, as in PyTorch's `Linear`,
            or `(inputs, outputs)`.
    """

    num_input_axes: int = 1
    transposed: bool = True

    def _matrix_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        inputs = math.prod(shape[: self.num_input_axes])
        return inputs, math.prod(shape[self.num_input_axes :])

    def tensor_shapes(self, weight_shapes: Shapes) -> Shapes:
        (shape,) = weight_shapes
        matrix_shape = self._matrix_shape(shape)
        return (matrix_shape[::-1] if self.transposed else matrix_shape,)

    def rows_axis(self, shape: tuple[int, ...]) -> int | None:
        axis = 1 if self.transposed else 0
        return axis if len(shape) == 2 else None

    def to_weights(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        (matrix,) = tensors
        return ((matrix.T if self.transposed else matrix).reshape(shapes[0]),)

    def to_tensors(self, weights: Arrays) -> Arrays:
        matrix = weights[0].reshape(self._matrix_shape(weights[0].shape))
        return (matrix.T if self.transposed else matrix,)


class Flat(Layout):
    """A bias `(outputs...)` that is stored as a vector."""

    def rows_axis(self, shape: tuple[int, ...]) -> int | None:
        return None

    def tensor_shapes(self, weight_shapes: Shapes) -> Shapes:
        return tuple((math.prod(shape),) for shape in weight_shapes)

    def to_weights(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return tuple(x.reshape(shape) for x, shape in zip(tensors, shapes))

    def to_tensors(self, weights: Arrays) -> Arrays:
        return tuple(x.reshape(-1) for x in weights)


@dataclasses.dataclass(frozen=True)
class Fused(Layout):
    """Several weights that are concatenated in one tensor.

    Attributes:
        layout: layout of each weight.
        axis: axis of the tensor along which they are concatenated.
    """

    layout: Layout
    axis: int

    def rows_axis(self, shape: tuple[int, ...]) -> int | None:
        return None

    def _part_shapes(self, weight_shapes: Shapes) -> list[tuple[int, ...]]:
        return [self.layout.tensor_shapes((shape,))[0] for shape in weight_shapes]

    def tensor_shapes(self, weight_shapes: Shapes) -> Shapes:
        part_shapes = self._part_shapes(weight_shapes)
        shape = list(part_shapes[0])
        shape[self.axis] = sum(part[self.axis] for part in part_shapes)
        return (tuple(shape),)

    def to_weights(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        sizes = [part[self.axis] for part in self._part_shapes(shapes)]
        parts = np.split(tensors[0], np.cumsum(sizes)[:-1], axis=self.axis)
        return tuple(
            self.layout.to_weights((part,), (shape,))[0]
            for part, shape in zip(parts, shapes)
        )

    def to_tensors(self, weights: Arrays) -> Arrays:
        parts = [self.layout.to_tensors((x,))[0] for x in weights]
        return (np.concatenate(parts, axis=self.axis),)


@dataclasses.dataclass(frozen=True)
class SkippedRows(Layout):
    """A table that is stored with additional leading rows, which no model reads.

    Attributes:
        num_rows: number of these rows. They are written as zeros.
    """

    num_rows: int

    def rows_axis(self, shape: tuple[int, ...]) -> int | None:
        return None

    def tensor_shapes(self, weight_shapes: Shapes) -> Shapes:
        ((length, *others),) = weight_shapes
        return ((length + self.num_rows, *others),)

    def to_weights(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return (tensors[0][self.num_rows :],)

    def to_tensors(self, weights: Arrays) -> Arrays:
        (table,) = weights
        return (np.concatenate([np.zeros_like(table[: self.num_rows]), table]),)


@dataclasses.dataclass(frozen=True)
class Entry:
    """Weights of a model and the stored tensors with the same values.

    Attributes:
        weights: paths of the model's variables.
        tensors: names of the tensors.
        layout: conversion between them.
    """

    weights: tuple[str, ...]
    tensors: tuple[str, ...]
    layout: Layout


# From the last part of a variable's path to the last part of a tensor's name.
_PARTS = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "scale": "weight",
    "beta": "bias",
    "embeddings": "weight",
    "reverse_embeddings": "weight",
    "table": "weight",
}


def block_modules(
    layer_prefix: str, module_prefix: str, num_blocks: int, block: Mapping[str, str]
) -> dict[str, str]:
    """Return a dict from layer paths to module names for several equal blocks.

    Args:
        layer_prefix: prefix of the layer paths, before the block's number.
        module_prefix: prefix of the module names, before the block's number.
        num_blocks: number of blocks.
        block: dict from the path of each layer in a block to the name of its module.
    """
    return {
        f"{layer_prefix}{i}/{layer}": f"{module_prefix}{i}.{module}"
        for i in range(num_blocks)
        for layer, module in block.items()
    }


def map_weights(
    model: keras.Model,
    modules: Mapping[str, str],
    transposed: bool = True,
    layouts: Mapping[str, Layout] | None = None,
) -> list[Entry]:
    """Return the entries for the weights of the given layers.

    Args:
        model: the model.
        modules: dict from the path of each layer to the name of its module, or from the
            path of a weight to the name of its tensor. Layers with the same module are
            concatenated in one tensor, in the order of this dict.
        transposed: see `Matrix`.
        layouts: dict from the path of a weight to its `Layout`. Default: the layout
            that is usual for the kind of weight.

    Returns:
        A list of `Entry`, without the weights of other layers and of adapters.
    """
    order = {key: position for position, key in enumerate(modules)}
    weights_of: dict[str, list[tuple[int, str]]] = {}
    for path in (weight.path for weight in model.weights):
        layer, _, part = path.rpartition("/")
        if path in modules:
            weights_of.setdefault(modules[path], []).append((order[path], path))
        elif layer in modules and part in _PARTS:
            tensor = f"{modules[layer]}.{_PARTS[part]}"
            weights_of.setdefault(tensor, []).append((order[layer], path))
    entries = []
    for tensor, ordered_paths in weights_of.items():
        weights = tuple(path for _, path in sorted(ordered_paths))
        layout = (layouts or {}).get(weights[0])
        layout = layout or _default_layout(weights[0], transposed)
        if len(weights) > 1:
            layout = Fused(layout, axis=0 if transposed else -1)
        entries.append(Entry(weights, (tensor,), layout))
    return entries


def _default_layout(path: str, transposed: bool) -> Layout:
    layer, _, part = path.rpartition("/")
    if part == "kernel":
        # The output projection of an attention layer has two input axes, (N, H).
        num_input_axes = 2 if layer.endswith("attention_output") else 1
        return Matrix(num_input_axes, transposed)
    if part == "reverse_embeddings":
        return Matrix(transposed=transposed)
    return Flat() if part == "bias" else Identity()
