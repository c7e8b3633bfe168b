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
    *,
    target=None,
    jit_compile="auto",
):
    """Writes a SavedModel that translates text, of any batch size and length.

    TensorFlow and tensorflow_text alone load it. Signatures:

    - `serving_default`: `text` string `(B,)` to `text` string `(B,)` and `score`
      float32 `(B,)`, as the strategy says. A blank text gives a blank one with the
      score 0; bytes that are not UTF-8 are read as U+FFFD.
    - `n_best`: `text` likewise to `texts` string `(B, R)` and `scores` float32
      `(B, R)`, the best first, as many as the strategy gives. Missing ones are blank,
      with the score minus infinity.
    - `translate_ids`: `source` int32 `(B, S)`, each row ended by the end token and
      padded with the source tokenizer's `padding_id`, to `token_ids`, `scores` and
      `lengths` as `keras_attn.decoding.generate` gives them.
    - `encode`: `source` int32 `(B, S)` to `hidden_states` `(B, S, D)`, the encoder's
      output, and `padding_mask` bool `(B, S)`. Left out where the target attends to no
      states of the source tokens.

    The folder is written under a temporary name and renamed: a failed export leaves
    nothing behind. `non_core_ops.json` in it lists the ops that TensorFlow alone does
    not have.

    Args:
        model: a translation model, from source and target ids to logits.
        path: folder to make; folders above it are made as well.
        source_tokenizer: one of `keras_attn.text`'s tokenizers.
        target_tokenizer: likewise. Default: the source's.
        strategy, max_length, max_source_length, target, jit_compile: see `Translator`.
            What XLA is to compile, it compiles where it is served, at the first request
            of each size, powers of two.
        overwrite: bool, whether to replace what is at `path`.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is False.
        OSError: if `path` cannot be written.
        RuntimeError: where Keras does not run on TensorFlow.
        ValueError: for a tokenizer whose ids do not fit the model, a model
            with other inputs, or one that cannot be decoded step by step.

    Example:
        >>> export_translator(model, "translator", source_tokenizer, target_tokenizer)
        >>> import tensorflow as tf, tensorflow_text  # in another process
        >>> loaded = tf.saved_model.load("translator")
        >>> loaded.signatures["serving_default"](tf.constant(["나는 학교에 간다."]))
    """
    path = saved_model.check_path(path, overwrite)
    for tokenizer in (source_tokenizer, target_tokenizer or source_tokenizer):
        tokenizer.check_export()
    translator = Translator(
        model,
        source_tokenizer,
        target_tokenizer,
        strategy,
        max_length,
        max_source_length,
        target=target,
        jit_compile=jit_compile,
    )
    saved_model.write(translator, path, translator.signatures())
    return path
