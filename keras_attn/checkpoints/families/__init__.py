"""Families of published models, by `model_type` in their config."""

from keras_attn.checkpoints.families import bart, bert, gpt2, llama, t5, vit
from keras_attn.checkpoints.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for module in (bart, bert, gpt2, llama, t5, vit)
    for family in module.FAMILIES
}
