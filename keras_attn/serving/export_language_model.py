"""A trained language model as a SavedModel that continues text."""

from keras_attn.serving import saved_model
from keras_attn.serving.text_generator import TextGenerator

__all__ = ["export_language_model"]


def export_language_model(
    model,
    path,
    tokenizer,
    strategy=None,
    max_length=128,
    max_prompt_length=256,
    overwrite=False,
    *,
    target=None,
    jit_compile="auto",
):
    """Writes a SavedModel that continues text, of any batch size and length.

    TensorFlow and tensorflow_text alone load it. Signatures:

    - `serving_default`: `text` string `(B,)`, the prompt, to `text` string `(B,)`, its
      continuation without the prompt (a space between them is its first character),
      and `score` float32 `(B,)`, as the strategy says. An empty prompt gives a text
      from its start; bytes that are not UTF-8 are read as U+FFFD.
    - `n_best`: `text` likewise to `texts` string `(B, R)` and `scores` float32
      `(B, R)`, the best first, as many as the strategy gives. Missing ones are blank,
      with the score minus infinity.
    - `generate_ids`: `prompt` int32 `(B, P)`, padded at the end with the tokenizer's
      `padding_id`, to `token_ids`, `scores` and `lengths` as
      `keras_attn.decoding.generate` gives them. A prompt is to begin with the start
      token; a row of padding is read as that token alone. A long prompt keeps its
      first token and the last of the others.

    The folder is written under a temporary name and renamed: a failed export leaves
    nothing behind. `non_core_ops.json` in it lists the ops that TensorFlow alone does
    not have.

    Args:
        model: a language model, from ids `(B, T)`, its only input, to logits.
        path: folder to make; folders above it are made as well.
        tokenizer: one of `keras_attn.text`'s tokenizers.
        strategy, max_length, max_prompt_length, target, jit_compile: see
            `TextGenerator`. What XLA is to compile, it compiles where it is served,
            at the first request of each batch size, powers of two.
        overwrite: bool, whether to replace what is at `path`.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is False.
        OSError: if `path` cannot be written.
        RuntimeError: where Keras does not run on TensorFlow.
        ValueError: for a tokenizer whose ids do not fit the model, a model
            with more inputs, or one that cannot be decoded step by step.

    Example:
        >>> export_language_model(model, "writer", tokenizer, Sampling(top_p=0.95))
        >>> import tensorflow as tf, tensorflow_text  # in another process
        >>> loaded = tf.saved_model.load("writer")
        >>> loaded.signatures["serving_default"](tf.constant(["def __init__("]))
    """
    path = saved_model.check_path(path, overwrite)
    tokenizer.check_export()
    generator = TextGenerator(
        model,
        tokenizer,
        strategy,
        max_length,
        max_prompt_length,
        target=target,
        jit_compile=jit_compile,
    )
    saved_model.write(generator, path, generator.signatures())
    return path
