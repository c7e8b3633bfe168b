"""The families of published models, by the `model_type` of their config."""

from keras_attn.checkpoints.families import bert

FAMILIES = {family.name: family for module in (bert,) for family in module.FAMILIES}
