"""Models, data and training loops of `benchmarks/learning.py`."""

__all__ = ["MODELS", "OPTIMIZERS"]

# The models of each task with the scripts that train them. The first is compared with
# the others.
MODELS = {
    "translation": {
        "keras_attn": "keras_run.py",
        "torch": "torch_run.py",
        "keras_hub": "keras_run.py",
        "marian": "torch_run.py",
    },
    "language-model": {"keras_attn": "keras_run.py", "gpt2": "torch_run.py"},
    "classifier": {"keras_attn": "keras_run.py", "keras_example": "keras_run.py"},
    "image": {"keras_attn": "keras_run.py", "keras_example": "keras_run.py"},
}

# Of the Keras models. The PyTorch models train with Adam.
OPTIMIZERS = ("adam", "adamw", "lion", "lamb", "keras_muon", "muon")
