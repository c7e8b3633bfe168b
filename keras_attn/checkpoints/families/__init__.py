"""The families of published models, by the `model_type` of their config."""

from keras_attn.checkpoints.families import bart, bert, gpt2, llama, t5, vit

FAMILIES = {
    family.name: family
    for module in (bart, bert, gpt2, llama, t5, vit)
    for family in module.FAMILIES
}
