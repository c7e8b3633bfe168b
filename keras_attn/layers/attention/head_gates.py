"""Gates on attention heads: factors of one, for the sake of their gradients."""

import contextlib
import contextvars

from keras import ops

__all__ = ["gated", "head_gates"]

_CURRENT = contextvars.ContextVar("head_gates", default=None)


@contextlib.contextmanager
def head_gates(gates):
    """A context in which what the heads of attention layers give is multiplied.

    Args:
        gates: a dict from multi-head attention layer to floats `(B, N)`, a factor for
            each head and row of the batch. Other layers are left alone.
    """
    token = _CURRENT.set(gates)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def gated(attended, layer):
    """`attended` `(B, T, N, V)`, times the gates of `layer` where it has any now."""
    gates = _CURRENT.get()
    if gates is None or layer not in gates:
        return attended
    factors = ops.cast(gates[layer], attended.dtype)
    return ops.multiply(attended, ops.expand_dims(factors, (1, 3)))
