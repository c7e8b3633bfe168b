"""Inspection of models: attention maps, head importance, parameters and FLOPs."""

from keras_attn.inspection.attention_maps import attention_maps
from keras_attn.inspection.count_parameters import count_parameters
from keras_attn.inspection.head_importance import head_importance
from keras_attn.inspection.plot_attention import plot_attention
from keras_attn.inspection.prune_heads import prune_heads

__all__ = [
    "attention_maps",
    "count_parameters",
    "head_importance",
    "plot_attention",
    "prune_heads",
]
