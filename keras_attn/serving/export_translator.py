"""Export of a translation model and its tokenizers as a SavedModel."""

import os
import pathlib

from keras_attn._types import Model
from keras_attn.decoding import Strategy
from keras_attn.serving import saved_model
from keras_attn.serving.translator import Translator
from keras_attn.text import Tokenizer
from keras_attn.text.tokenizers.tokenizer import check_tokenizer

__all__ = ["export_translator"]


def export_translator(
    model: Model,
    path: str | os.PathLike[str],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer | None = None,
    strategy: Strategy | None = None,
    *,
    max_new_tokens: int = 128,
    max_source_length: int = 256,
    overwrite: bool = False,
    target: str | None = None,
    jit_compile: bool | str = "auto",
) -> pathlib.Path:
    """Write a SavedModel that translates text, for any batch size and length.

    Loading it requires only TensorFlow and tensorflow_text. It has these signatures:

    - `serving_default`: from `text`, string `(B,)`, to `text`, string `(B,)`, and
      `score`, float32 `(B,)`, the score of the strategy. The translation of a blank
      text is blank with the score 0. Bytes that are not UTF-8 are read as U+FFFD.
    - `n_best`: from `text`, string `(B,)`, to `texts`, string `(B, R)`, and `scores`,
      float32 `(B, R)`: all hypotheses that the strategy returns, best first. Missing
      hypotheses are blank and their score is minus infinity.
    - `translate_ids`: from `source`, int32 `(B, S)`, each sequence ending with the end
      token and padded with the source tokenizer's `padding_id`, to `token_ids`,
      `scores` and `lengths` as returned by `keras_attn.decoding.generate`.
    - `encode`: from `source`, int32 `(B, S)`, to `hidden_states` `(B, S, D)`, the
      encoder's output, and `padding_mask`, bool `(B, S)`. It is left out if the decoder
      does not attend to states of the source tokens.

    The folder is written under a temporary name and then renamed, so a failed export
    leaves no files, and one that is killed leaves an existing SavedModel as it was. The
    file `non_core_ops.json` in the folder lists the ops that are not part of TensorFlow
    itself, and `keras_attn_files.json` all files, which a later export may replace.

    Args:
        model: A translation model, from source ids `(B, S)` and target ids `(B, T)` to
            logits `(B, T, V)`.
        path: Path of the folder to create. Missing parent folders are created as well.
        source_tokenizer: A tokenizer of `keras_attn.text`.
        target_tokenizer: A tokenizer of `keras_attn.text`. Default: the source
            tokenizer.
        strategy, max_new_tokens, max_source_length, target, jit_compile: See
            `Translator`. XLA compiles in the process that serves the SavedModel, at the
            first request of each batch size and source length (both rounded up to
            powers of two).
        overwrite: Whether to replace an existing SavedModel at `path`, one that was
            exported by this package and contains no other files.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        FileExistsError: If `path` exists and `overwrite` is False, or it contains
            files that no export has written; the message names them.
        OSError: If `path` cannot be written.
        RuntimeError: If the Keras backend is not TensorFlow.
        TypeError: If a tokenizer is not one of `keras_attn.text`.
        ValueError: If a tokenizer cannot be exported or its ids do not fit the model,
            the model has other inputs, or it cannot be decoded step by step.

    Example:
        >>> import tempfile
        >>> import tensorflow as tf
        >>> from keras_attn.models import transformer_translator
        >>> from keras_attn.serving import export_translator
        >>> from keras_attn.text import CharacterTokenizer
        >>> texts = ["나는 학교에 간다.", "I go to school."]
        >>> tokenizer = CharacterTokenizer.train(texts, 40)
        >>> model = transformer_translator(
        ...     tokenizer.vocabulary_size,
        ...     num_layers=1,
        ...     hidden_dim=8,
        ...     intermediate_dim=16,
        ...     num_heads=2,
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = export_translator(
        ...         model,
        ...         f"{folder}/translator",
        ...         tokenizer,
        ...         max_new_tokens=4,
        ...         jit_compile=False,
        ...     )
        ...     loaded = tf.saved_model.load(path)
        >>> outputs = loaded.signatures["serving_default"](tf.constant(texts[:1]))
        >>> sorted(outputs)
        ['score', 'text']
    """
    path = saved_model.check_path(path, overwrite)
    if target_tokenizer is None:
        target_tokenizer = source_tokenizer
    for name, tokenizer in (
        ("source_tokenizer", source_tokenizer),
        ("target_tokenizer", target_tokenizer),
    ):
        check_tokenizer(name, tokenizer)
        tokenizer.check_export()
    translator = Translator(
        model,
        source_tokenizer,
        target_tokenizer,
        strategy,
        max_new_tokens,
        max_source_length=max_source_length,
        target=target,
        jit_compile=jit_compile,
    )
    saved_model.write(translator, path, translator.signatures(), overwrite)
    return path
