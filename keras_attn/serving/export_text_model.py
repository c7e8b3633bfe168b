"""A trained model of texts as a SavedModel that takes text."""

from keras_attn.serving import saved_model
from keras_attn.serving.text_model import TextModel

__all__ = ["export_text_model"]


def export_text_model(
    model, path, tokenizer, max_length=256, labels=None, overwrite=False
):
    """Writes a SavedModel from texts to vectors or classes, for any number of texts.

    For sentence embeddings, classifiers, hidden states. TensorFlow and tensorflow_text
    alone load it. Signature `serving_default`: `text` string `(B,)` to `output`, what
    the model gives for each text `(B, ...)`; with `labels` also to `label` string
    `(B,)`, the most likely class, and `probabilities` float32 `(B, number of classes)`.
    Texts are read between a start and an end token; bytes that are not UTF-8 are read
    as U+FFFD.

    The folder is written under a temporary name and renamed: a failed export leaves
    nothing behind. `non_core_ops.json` in it lists the ops that TensorFlow alone does
    not have.

    Args:
        model: from token ids `(B, T)`, its only input, to one tensor a text `(B, ...)`.
        path: folder to make; folders above it are made as well.
        tokenizer, max_length, labels: see `TextModel`.
        overwrite: bool, whether to replace what is at `path`.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is False.
        OSError: if `path` cannot be written.
        RuntimeError: where Keras does not run on TensorFlow.
        ValueError: for a tokenizer whose ids do not fit the model, a model
            with other inputs, labels that do not fit the output.

    Example:
        >>> export_text_model(model, "embedder", tokenizer)
        >>> import tensorflow as tf, tensorflow_text  # in another process
        >>> loaded = tf.saved_model.load("embedder")
        >>> loaded.signatures["serving_default"](tf.constant(["a text"]))["output"]
    """
    path = saved_model.check_path(path, overwrite)
    tokenizer.check_export()
    text_model = TextModel(model, tokenizer, max_length, labels)
    saved_model.write(text_model, path, text_model.signatures())
    return path
