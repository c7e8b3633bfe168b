"""Looking into a model: attention maps, where its parameters are."""

from keras_attn.inspection.attention_maps import attention_maps
from keras_attn.inspection.count_parameters import count_parameters
from keras_attn.inspection.plot_attention import plot_attention

__all__ = ["attention_maps", "count_parameters", "plot_attention"]
