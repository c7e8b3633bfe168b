"""Language models with a tokenizer: a prompt in, its continuation out."""

from collections.abc import Callable

import keras
import tensorflow as tf

from keras_attn._graph import functional
from keras_attn._types import Tensor
from keras_attn.decoding import Strategy
from keras_attn.decoding.step.model_info import find_target, max_positions
from keras_attn.serving.search import ServedSearch, check_int
from keras_attn.serving.text_to_text import (
    TextToText,
    check_model,
    check_vocabulary,
    graph_function,
)
from keras_attn.text import Tokenizer
from keras_attn.text.tokenizers.tokenizer import check_tokenizer

__all__ = ["TextGenerator"]


class TextGenerator(TextToText):
    """Continues texts with a language model; `export_language_model` saves it.

    The variables are shared with the model, so the current weights are always used.
    `enable_lora` and `quantize` replace variables: call them before.

    A prompt consists of the start token and the tokens of the text, and is continued
    until the end token. An empty prompt is the start token alone. The length of the
    prefill is that of the shortest prompt of a batch, rounded down to 1, 16, 64, 256,
    ... Each further token of a prompt takes as long as a generated token, so it is
    faster to put long and short prompts into separate batches.

    Args:
        model: A language model, from token ids `(B, T)`, its only input, to logits
            `(B, T, V)`.
        tokenizer: A tokenizer of `keras_attn.text`.
        strategy: The decoding strategy, a `keras_attn.decoding.Strategy`. Default:
            `GreedySearch()`. `Sampling` without a seed draws new random numbers for
            each request.
        max_new_tokens: int, the maximum number of generated tokens per prompt.
        max_prompt_length: int, the maximum number of tokens of a prompt, including the
            start token. Of a longer prompt, the last tokens are used. If the model has
            learned positions, it is reduced so that prompt and new tokens fit into
            them.
        target: The name of the model's input. Not required.
        jit_compile: bool or `"auto"`, whether XLA compiles the search. Generation is
            then two to three times faster per token, but the first request of each
            batch size (rounded up to a power of two) takes about ten seconds for a
            model of 6 layers. `"auto"` compiles large models, see
            `keras_attn.decoding.generate`.

    Attributes:
        generate: `tf.function` from `text`, string `(B,)`, to a dict of `text`, string
            `(B,)`, and `score`, float32 `(B,)`.
        n_best, generate_ids: `tf.function`s, see `export_language_model`.

    Raises:
        RuntimeError: If the Keras backend is not TensorFlow.
        TypeError: If `tokenizer` is not one of `keras_attn.text`.
        ValueError: If the ids of the tokenizer do not fit the model, the model has
            several inputs, or it cannot be decoded step by step.

    Example:
        >>> from keras_attn.decoding import Sampling
        >>> from keras_attn.models import causal_language_model
        >>> from keras_attn.serving import TextGenerator
        >>> from keras_attn.text import CharacterTokenizer
        >>> tokenizer = CharacterTokenizer.train(["I go to school."], 20)
        >>> model = causal_language_model(
        ...     tokenizer.vocabulary_size,
        ...     num_layers=1,
        ...     hidden_dim=8,
        ...     intermediate_dim=16,
        ...     num_heads=2,
        ... )
        >>> generate = TextGenerator(
        ...     model,
        ...     tokenizer,
        ...     Sampling(temperature=0.8),
        ...     max_new_tokens=4,
        ...     max_prompt_length=8,
        ...     jit_compile=False,
        ... )
        >>> continuations = generate(["I go", "to"])
        >>> len(continuations)
        2
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        strategy: Strategy | None = None,
        max_new_tokens: int = 128,
        max_prompt_length: int = 256,
        *,
        target: str | None = None,
        jit_compile: bool | str = "auto",
    ) -> None:
        check_model(model)
        check_tokenizer("tokenizer", tokenizer)
        target_input = _only_input(model, target)
        check_int("max_new_tokens", max_new_tokens, 1)
        reason = ", for the start token and one more"
        check_int("max_prompt_length", max_prompt_length, 2, reason)
        check_vocabulary(model, tokenizer, "text", target_input.name, is_generated=True)
        max_prompt_length = _limit_prompt_length(
            model, max_new_tokens, max_prompt_length
        )
        search = ServedSearch(
            model,
            target_input,
            target_input,
            tokenizer,
            strategy,
            max_new_tokens=max_new_tokens,
            max_source_length=max_prompt_length,
            padding_id=tokenizer.padding_id,
            jit_compile=jit_compile,
        )

        def search_prompts(prompts: Tensor) -> dict[str, Tensor]:
            shape = [None, max_prompt_length]
            return search(prompts.to_tensor(tokenizer.padding_id, shape=shape))

        def search_texts(text: Tensor) -> tuple[Tensor, Tensor]:
            prompts = tokenizer.tokenize(text, add_start=True)
            prompts = _truncate(prompts, max_prompt_length)
            results = search_prompts(prompts)
            texts = _continuations(tokenizer, prompts, results["token_ids"])
            return texts, results["scores"]

        def generate_ids(prompt: Tensor) -> dict[str, Tensor]:
            prompts = _remove_padding(tokenizer, prompt)
            return search_prompts(_truncate(prompts, max_prompt_length))

        super().__init__(model, search_texts)
        self.tokenizer = tokenizer
        self.generate: Callable[[Tensor], dict[str, Tensor]] = self.best
        self.generate_ids: Callable[[Tensor], dict[str, Tensor]] = graph_function(
            generate_ids, tf.TensorSpec([None, None], tf.int32, name="prompt")
        )

    def signatures(self) -> dict[str, Callable[[Tensor], dict[str, Tensor]]]:
        return {**super().signatures(), "generate_ids": self.generate_ids}


def _only_input(model: keras.Model, target: str | None) -> keras.KerasTensor:
    if len(model.inputs) != 1 or len(model.inputs[0].shape) != 2:
        shapes = {tensor.name: tensor.shape for tensor in model.inputs}
        raise ValueError(
            "`model` must have one input, of token ids (B, T). "
            f"Received: a model with the inputs {shapes}"
        )
    return find_target(model, target)


def _limit_prompt_length(
    model: keras.Model, max_new_tokens: int, max_prompt_length: int
) -> int:
    """Return the maximum prompt length, limited by the model's learned positions."""
    num_positions = max_positions(functional.read_graph(model).calls)
    if num_positions is not None:
        # The last generated token is not an input of the model.
        available = num_positions - max_new_tokens + 1
        max_prompt_length = min(max_prompt_length, available)
    if max_prompt_length < 2:
        raise ValueError(
            "`max_new_tokens` must leave at least 2 tokens for a prompt in the "
            f"{num_positions} positions that the model has learned. "
            f"Received: max_new_tokens={max_new_tokens}"
        )
    return max_prompt_length


def _truncate(prompts: Tensor, max_length: int) -> Tensor:
    """Truncate ragged prompts: keep the first token and the last of the others."""
    last = prompts[:, 1:][:, 1 - max_length :]
    return tf.concat([prompts[:, :1], last], axis=1)


def _continuations(tokenizer: Tokenizer, prompts: Tensor, token_ids: Tensor) -> Tensor:
    """Return the text that follows each prompt.

    Prompt and new tokens are detokenized together, because a tokenizer may insert a
    space between them.

    Args:
        tokenizer: The tokenizer.
        prompts: Ragged int32 `(B, None)`.
        token_ids: int32 `(B, R, L)`, the new tokens.

    Returns:
        A string tensor `(B, R)`.
    """
    prompt_texts = tokenizer.detokenize(prompts)[:, None]
    num_hypotheses, max_new_tokens = token_ids.shape[1:]
    # Ragged, because padding between prompt and new tokens may equal the end token.
    index = tf.repeat(tf.range(tf.shape(token_ids)[0]), num_hypotheses)
    prompts = tf.gather(prompts, index)
    new_tokens = tf.reshape(token_ids, [-1, max_new_tokens])
    texts = tokenizer.detokenize(tf.concat([prompts, new_tokens], axis=1))
    texts = tf.reshape(texts, [-1, num_hypotheses])  # pyright: ignore[reportArgumentType]
    start = tf.minimum(tf.strings.length(prompt_texts), tf.strings.length(texts))
    return tf.strings.substr(texts, start, tf.strings.length(texts) - start)


def _remove_padding(tokenizer: Tokenizer, prompts: Tensor) -> Tensor:
    """Return padded prompts `(B, P)` as ragged ones, with a start token if empty."""
    is_token = tf.not_equal(prompts, tokenizer.padding_id)
    if tokenizer.start_token_id == tokenizer.padding_id:
        is_token |= tf.equal(tf.range(tf.shape(prompts)[1]), 0)
    prompts = tf.ragged.boolean_mask(prompts, is_token)
    is_empty = tf.cast(tf.equal(prompts.row_lengths(), 0), tf.int64)
    starts = tf.fill([tf.reduce_sum(is_empty)], tokenizer.start_token_id)
    starts = tf.RaggedTensor.from_row_lengths(  # pyright: ignore[reportAttributeAccessIssue]
        starts, is_empty
    )
    return tf.concat([starts, prompts], axis=1)
