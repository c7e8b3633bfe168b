"""Export of an encoder or classifier and its tokenizer as a SavedModel."""

import os
import pathlib
from collections.abc import Sequence

from keras_attn._types import Model
from keras_attn.serving import saved_model
from keras_attn.serving.text_model import TextModel
from keras_attn.text import Tokenizer
from keras_attn.text.tokenizers.tokenizer import check_tokenizer

__all__ = ["export_text_model"]


def export_text_model(
    model: Model,
    path: str | os.PathLike[str],
    tokenizer: Tokenizer,
    max_length: int = 256,
    labels: Sequence[str] | None = None,
    *,
    overwrite: bool = False,
) -> pathlib.Path:
    """Write a SavedModel from texts to vectors or classes, for any batch size.

    It is meant for sentence embeddings, classifiers and hidden states. Loading it
    requires only TensorFlow and tensorflow_text. Its signature `serving_default` is
    from `text`, string `(B,)`, to `output` `(B, ...)`, the output of the model for each
    text. With `labels`, it also returns `label`, string `(B,)`, the most probable
    class, and `probabilities`, float32 `(B, number of classes)`. A start and an end
    token are added to each text. Bytes that are not UTF-8 are read as U+FFFD.

    The folder is written under a temporary name and then renamed, so a failed export
    leaves no files, and one that is killed leaves an existing SavedModel as it was. The
    file `non_core_ops.json` in the folder lists the ops that are not part of TensorFlow
    itself, and `keras_attn_files.json` all files, which a later export may replace.

    Args:
        model: A model from token ids `(B, T)`, its only input, to one output
            `(B, ...)`.
        path: Path of the folder to create. Missing parent folders are created as well.
        tokenizer, max_length, labels: See `TextModel`.
        overwrite: Whether to replace an existing SavedModel at `path`, one that was
            exported by this package and contains no other files.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        FileExistsError: If `path` exists and `overwrite` is False, or it contains
            files that no export has written; the message names them.
        OSError: If `path` cannot be written.
        RuntimeError: If the Keras backend is not TensorFlow.
        TypeError: If `tokenizer` is not one of `keras_attn.text`.
        ValueError: If the tokenizer cannot be exported or its ids do not fit the model,
            the model has other inputs, or `labels` do not fit the output.

    Example:
        >>> import tempfile
        >>> import tensorflow as tf
        >>> from keras_attn.models import text_classifier
        >>> from keras_attn.serving import export_text_model
        >>> from keras_attn.text import CharacterTokenizer
        >>> texts = ["a good film", "a bad film"]
        >>> tokenizer = CharacterTokenizer.train(texts, 20)
        >>> model = text_classifier(
        ...     tokenizer.vocabulary_size,
        ...     2,
        ...     num_layers=1,
        ...     hidden_dim=8,
        ...     intermediate_dim=16,
        ...     num_heads=2,
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = export_text_model(model, f"{folder}/classifier", tokenizer)
        ...     loaded = tf.saved_model.load(path)
        >>> outputs = loaded.signatures["serving_default"](tf.constant(texts))
        >>> tuple(outputs["output"].shape)
        (2, 2)
    """
    path = saved_model.check_path(path, overwrite)
    check_tokenizer("tokenizer", tokenizer)
    tokenizer.check_export()
    text_model = TextModel(model, tokenizer, max_length, labels)
    saved_model.write(text_model, path, text_model.signatures(), overwrite)
    return path
