"""A trained translation model as a SavedModel that takes text and returns text."""

from keras_attn.serving import saved_model
from keras_attn.serving.translator import Translator

__all__ = ["export_translator"]


def export_translator(
    model,
    path,
    source_tokenizer,
    target_tokenizer=None,
    strategy=None,
    max_length=128,
    max_source_length=256,
    overwrite=False,
):
    """Writes a SavedModel that translates text, of any batch size and length.

    TensorFlow and tensorflow_text alone load it. Signatures:

    - `serving_default`: `text` string `(B,)` to `text` string `(B,)` and `score`
      float32 `(B,)`, the translation's log-probability. A blank text gives a blank
      one with the score 0; bytes that are not UTF-8 are read as U+FFFD.
    - `translate_ids`: `source` int32 `(B, S)`, each row ended by the end token and
      padded with 0, to `token_ids`, `scores` and `lengths` as
      `keras_attn.decoding.generate` gives them.
    - `encode`: `source` int32 `(B, S)` to `hidden_states` `(B, S, D)`, the encoder's
      output, and `padding_mask` bool `(B, S)`.

    The folder is written under a temporary name and renamed: a failed export leaves
    nothing behind. `non_core_ops.json` in it lists the ops that core TensorFlow does
    not have.

    Args:
        model: a translation model, from `{"source", "target"}` ids to logits.
        path: folder to make; folders above it are made as well.
        source_tokenizer: one of `keras_attn.text`'s tokenizers.
        target_tokenizer: likewise. Default: the source's.
        strategy: how tokens are chosen. Default: greedily.
        max_length: int, how many tokens are generated at most for a text.
        max_source_length: int, how many tokens of a text are read at most.
        overwrite: bool, whether to replace what is at `path`.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is False.
        OSError: if `path` cannot be written.
        RuntimeError: where Keras does not run on TensorFlow.
        ValueError: for a tokenizer whose vocabulary does not fit the model, or a
            model that cannot be decoded step by step.

    Example:
        >>> export_translator(model, "translator", source_tokenizer, target_tokenizer)
        >>> import tensorflow as tf, tensorflow_text  # in another process
        >>> loaded = tf.saved_model.load("translator")
        >>> loaded.signatures["serving_default"](tf.constant(["나는 학교에 간다."]))
    """
    path = saved_model.check_path(path, overwrite)
    translator = Translator(
        model,
        source_tokenizer,
        target_tokenizer,
        strategy,
        max_length,
        max_source_length,
    )
    saved_model.write(
        translator,
        path,
        {
            "serving_default": translator.translate,
            "translate_ids": translator.translate_ids,
            "encode": translator.encode,
        },
    )
    return path
