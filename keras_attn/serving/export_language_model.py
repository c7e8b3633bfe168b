"""Export of a language model and its tokenizer as a SavedModel."""

import os
import pathlib

from keras_attn._types import Model
from keras_attn.decoding import Strategy
from keras_attn.serving import saved_model
from keras_attn.serving.text_generator import TextGenerator
from keras_attn.text import Tokenizer
from keras_attn.text.tokenizers.tokenizer import check_tokenizer

__all__ = ["export_language_model"]


def export_language_model(
    model: Model,
    path: str | os.PathLike[str],
    tokenizer: Tokenizer,
    strategy: Strategy | None = None,
    max_new_tokens: int = 128,
    *,
    max_prompt_length: int = 256,
    overwrite: bool = False,
    target: str | None = None,
    jit_compile: bool | str = "auto",
) -> pathlib.Path:
    """Write a SavedModel that continues text, for any batch size and length.

    Loading it requires only TensorFlow and tensorflow_text. It has these signatures:

    - `serving_default`: from `text`, string `(B,)`, the prompts, to `text`, string
      `(B,)`, the continuations without the prompts, and `score`, float32 `(B,)`, the
      score of the strategy. If there is a space between prompt and continuation, it is
      the first character of the continuation. An empty prompt generates a text from its
      beginning. Bytes that are not UTF-8 are read as U+FFFD.
    - `n_best`: from `text`, string `(B,)`, to `texts`, string `(B, R)`, and `scores`,
      float32 `(B, R)`: all hypotheses that the strategy returns, best first. Missing
      hypotheses are blank and their score is minus infinity.
    - `generate_ids`: from `prompt`, int32 `(B, P)`, padded at the end with the
      tokenizer's `padding_id`, to `token_ids`, `scores` and `lengths` as returned by
      `keras_attn.decoding.generate`. A prompt begins with the start token; a prompt of
      padding only is read as the start token. Longer prompts than `max_prompt_length`
      are truncated to their first token and the last of the others.

    The folder is written under a temporary name and then renamed, so a failed export
    leaves no files, and one that is killed leaves an existing SavedModel as it was. The
    file `non_core_ops.json` in the folder lists the ops that are not part of TensorFlow
    itself, and `keras_attn_files.json` all files, which a later export may replace.

    Args:
        model: A language model, from token ids `(B, T)`, its only input, to logits
            `(B, T, V)`.
        path: Path of the folder to create. Missing parent folders are created as well.
        tokenizer: A tokenizer of `keras_attn.text`.
        strategy, max_new_tokens, max_prompt_length, target, jit_compile: See
            `TextGenerator`. XLA compiles in the process that serves the SavedModel, at
            the first request of each batch size (rounded up to a power of two).
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
            the model has several inputs, or it cannot be decoded step by step.

    Example:
        >>> import tempfile
        >>> import tensorflow as tf
        >>> from keras_attn.models import causal_language_model
        >>> from keras_attn.serving import export_language_model
        >>> from keras_attn.text import CharacterTokenizer
        >>> tokenizer = CharacterTokenizer.train(["I go to school."], 20)
        >>> model = causal_language_model(
        ...     tokenizer.vocabulary_size,
        ...     num_layers=1,
        ...     hidden_dim=8,
        ...     intermediate_dim=16,
        ...     num_heads=2,
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = export_language_model(
        ...         model,
        ...         f"{folder}/writer",
        ...         tokenizer,
        ...         max_new_tokens=4,
        ...         max_prompt_length=8,
        ...         jit_compile=False,
        ...     )
        ...     loaded = tf.saved_model.load(path)
        >>> outputs = loaded.signatures["serving_default"](tf.constant(["I go"]))
        >>> sorted(outputs)
        ['score', 'text']
    """
    path = saved_model.check_path(path, overwrite)
    check_tokenizer("tokenizer", tokenizer)
    tokenizer.check_export()
    generator = TextGenerator(
        model,
        tokenizer,
        strategy,
        max_new_tokens,
        max_prompt_length,
        target=target,
        jit_compile=jit_compile,
    )
    saved_model.write(generator, path, generator.signatures(), overwrite)
    return path
