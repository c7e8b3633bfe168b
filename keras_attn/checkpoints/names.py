"""Which weights of ours are which tensors of a published model, and in what form."""

import dataclasses
import math

import numpy as np

__all__ = [
    "Dropped",
    "Entry",
    "Fused",
    "Kernel",
    "Layout",
    "Same",
    "entries",
    "numbered",
]


class Layout:
    """How the tensors of theirs in an `Entry` become the weights of ours, and back.

    Arrays and shapes come in tuples, in the order of the entry. This one leaves all as
    it is.
    """

    def shapes(self, ours):
        """The shapes of theirs, of those of ours."""
        return ours

    def rows_axis(self, shape):
        """The axis of ours, of `shape`, that the rows of theirs are on.

        None where a few rows of theirs alone cannot be read.
        """
        return 0

    def read(self, theirs, shapes):
        """Arrays of ours, of `shapes`, of those of theirs."""
        return theirs

    def write(self, ours):
        """Arrays of theirs, of those of ours."""
        return ours


Same = Layout


@dataclasses.dataclass(frozen=True)
class Kernel(Layout):
    """A kernel `(inputs..., outputs...)`, theirs a matrix.

    Attributes:
        inputs: int, how many of its axes are summed over.
        turned: bool, whether theirs is `(outputs, inputs)`, as PyTorch's `Linear` has
            it, or `(inputs, outputs)`.
    """

    inputs: int = 1
    turned: bool = True

    def _matrix(self, shape):
        rows = math.prod(shape[: self.inputs])
        return rows, math.prod(shape[self.inputs :])

    def shapes(self, ours):
        (shape,) = ours
        matrix = self._matrix(shape)
        return (matrix[::-1] if self.turned else matrix,)

    def rows_axis(self, shape):
        axis = 1 if self.turned else 0
        return axis if len(shape) == 2 else None

    def read(self, theirs, shapes):
        (array,) = theirs
        return ((array.T if self.turned else array).reshape(shapes[0]),)

    def write(self, ours):
        matrix = ours[0].reshape(self._matrix(ours[0].shape))
        return (matrix.T if self.turned else matrix,)


class Flat(Layout):
    """A bias `(outputs...)`, theirs a vector."""

    def rows_axis(self, shape):
        return None

    def shapes(self, ours):
        return tuple((math.prod(shape),) for shape in ours)

    def read(self, theirs, shapes):
        return tuple(x.reshape(shape) for x, shape in zip(theirs, shapes))

    def write(self, ours):
        return tuple(x.reshape(-1) for x in ours)


@dataclasses.dataclass(frozen=True)
class Fused(Layout):
    """Several weights of ours, side by side in one tensor of theirs.

    Attributes:
        layout: `Layout` of each.
        axis: int, of theirs, along which they are.
    """

    layout: Layout
    axis: int

    def rows_axis(self, shape):
        return None

    def _each(self, shapes):
        return [self.layout.shapes((shape,))[0] for shape in shapes]

    def shapes(self, ours):
        each = self._each(ours)
        shape = list(each[0])
        shape[self.axis] = sum(one[self.axis] for one in each)
        return (tuple(shape),)

    def read(self, theirs, shapes):
        sizes = [one[self.axis] for one in self._each(shapes)]
        parts = np.split(theirs[0], np.cumsum(sizes)[:-1], axis=self.axis)
        return tuple(
            self.layout.read((part,), (shape,))[0] for part, shape in zip(parts, shapes)
        )

    def write(self, ours):
        parts = [self.layout.write((x,))[0] for x in ours]
        return (np.concatenate(parts, axis=self.axis),)


@dataclasses.dataclass(frozen=True)
class Dropped(Layout):
    """A table whose first rows are never read: theirs has them, ours has not."""

    rows: int

    def rows_axis(self, shape):
        return None

    def shapes(self, ours):
        ((length, *others),) = ours
        return ((length + self.rows, *others),)

    def read(self, theirs, shapes):
        return (theirs[0][self.rows :],)

    def write(self, ours):
        (table,) = ours
        return (np.concatenate([np.zeros_like(table[: self.rows]), table]),)


@dataclasses.dataclass(frozen=True)
class Entry:
    """Weights of ours, tensors of theirs that hold the same numbers, and the layout.

    Attributes:
        ours: tuple of the paths of our variables.
        theirs: tuple of names of tensors.
        layout: a `Layout`.
    """

    ours: tuple
    theirs: tuple
    layout: Layout


# Last part of our path, and of their name.
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


def numbered(ours, theirs, count, block):
    """The names in `block`, ours to theirs, of each of several blocks.

    Args:
        ours, theirs: str, what the names of blocks begin with, before their number.
        count: int, how many blocks there are.
        block: dict from the path of a layer in a block of ours to the name in theirs.
    """
    return {
        f"{ours}{i}/{own}": f"{theirs}{i}.{name}"
        for i in range(count)
        for own, name in block.items()
    }


def entries(model, modules, turned=True, layouts=None):
    """The entries of the weights of layers that go by other names elsewhere.

    Args:
        model: `keras.Model`.
        modules: dict from the path of a layer of ours to the name of theirs, or of
            a weight to that of a tensor. What has one name lies side by side in
            theirs, in the order of this dict.
        turned: bool, see `Kernel`.
        layouts: dict from the path of a weight of ours to its `Layout`, where that
            is not the usual one.

    Returns:
        A list of `Entry`. Weights of other layers, and adapters, are not in it.
    """
    order = {key: place for place, key in enumerate(modules)}
    places = {}
    for path in (weight.path for weight in model.weights):
        layer, _, part = path.rpartition("/")
        if path in modules:
            places.setdefault(modules[path], []).append((order[path], path))
        elif layer in modules and part in _PARTS:
            theirs = f"{modules[layer]}.{_PARTS[part]}"
            places.setdefault(theirs, []).append((order[layer], path))
    found = []
    for theirs, found_there in places.items():
        ours = tuple(path for _, path in sorted(found_there))
        layout = (layouts or {}).get(ours[0]) or _usual(ours[0], turned)
        if len(ours) > 1:
            layout = Fused(layout, axis=0 if turned else -1)
        found.append(Entry(ours, (theirs,), layout))
    return found


def _usual(path, turned):
    layer, _, part = path.rpartition("/")
    if part == "kernel":
        # Heads go out of an attention as two axes.
        return Kernel(2 if layer.endswith("attention_output") else 1, turned)
    if part == "reverse_embeddings":
        return Kernel(turned=turned)
    return Flat() if part == "bias" else Same()
