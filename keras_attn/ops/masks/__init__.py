"""Masks: which query positions may attend to which key positions."""

from keras_attn.ops.masks.build import (
    causal,
    check,
    combine,
    dense,
    is_only_causal,
    padding,
    segments,
    window,
)
from keras_attn.ops.masks.kinds import Mask, join
from keras_attn.ops.masks.positions import Span

__all__ = [
    "Mask",
    "Span",
    "causal",
    "check",
    "combine",
    "dense",
    "is_only_causal",
    "join",
    "padding",
    "segments",
    "window",
]
