"""Decoding as part of a served graph: any batch size, few compiled programs."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_attn._types import Tensor
from keras_attn.decoding import GreedySearch, Sampling, Strategy
from keras_attn.decoding.compile import uses_xla
from keras_attn.decoding.loop import DecodingLoop, SearchSettings, prompt_lengths
from keras_attn.decoding.step.step_model import step_model
from keras_attn.decoding.strategies.logits_processors import (
    TokenConstraints,
    default_banned_token_ids,
)
from keras_attn.serving import shape_buckets
from keras_attn.text import Tokenizer

__all__ = ["SHORTEST", "ServedSearch", "check_int"]

# The shortest length that token ids are padded to.
SHORTEST = 16


class ServedSearch:
    """A `DecodingLoop` as a function of token ids, as part of a graph of strings.

    XLA takes seconds to compile the loop for each new shape. Token ids are therefore
    padded to the next power of two that is at least 16 (or to `max_source_length`).
    Batches are padded to the next power of two with copies of their first element,
    which are removed from the results. Because of masks, no result depends on the
    padding.

    Prompts are all padded to `max_source_length`, because the length of a KV cache is
    fixed. The length of the prefill is that of the shortest prompt of a batch, rounded
    down to 1, 16, 64 and so on. There is one loop for each of these lengths below
    `max_source_length`. The remaining tokens of a prompt are processed one by one, and
    each takes as long as a generated token.

    Args:
        model: The model to decode with.
        source: The model's input that the token ids are for, a `keras.KerasTensor`.
        target: The model's target input, a `keras.KerasTensor`. It is `source` if the
            token ids are prompts.
        tokenizer: The tokenizer of the generated tokens.
        strategy: A `keras_attn.decoding.Strategy`, or None for `GreedySearch()`.
        max_new_tokens: int L, the maximum number of generated tokens.
        max_source_length: The maximum number of token ids per batch element. Prompts
            must not be longer; longer source ids are padded to the next power of two
            if XLA compiles the search.
        padding_id: int, the id that pads the token ids.
        jit_compile: bool or `"auto"`, see `keras_attn.decoding.generate`.

    Raises:
        ValueError: If the strategy is not a `Strategy`, or the model cannot be decoded
            step by step.
    """

    def __init__(
        self,
        model: keras.Model,
        source: keras.KerasTensor,
        target: keras.KerasTensor,
        tokenizer: Tokenizer,
        strategy: Strategy | None,
        *,
        max_new_tokens: int,
        max_source_length: int,
        padding_id: int,
        jit_compile: bool | str,
    ) -> None:
        strategy = GreedySearch() if strategy is None else strategy
        if not isinstance(strategy, Strategy):
            raise ValueError(
                "`strategy` must be a strategy of `keras_attn.decoding`, such as "
                f"`GreedySearch()`. Received: strategy={strategy!r}"
            )
        self._strategy = strategy
        self._padding_id = padding_id
        self._max_new_tokens = max_new_tokens
        use_xla = bool(uses_xla(jit_compile, model, max_new_tokens))
        are_prompts = source is target
        self._fixed_length: int | None = source.shape[1]
        if are_prompts:
            self._fixed_length = max_source_length
        # The sizes to pad to, or None if there is no need to.
        self._batch_sizes: tuple[int, ...] | None = None
        self._lengths: tuple[int, ...] | None = None
        if use_xla:
            self._batch_sizes = shape_buckets.bucket_sizes(1)
            self._lengths = shape_buckets.bucket_sizes(SHORTEST, max_source_length)
        self._prefill_lengths, prefill = [1], SHORTEST
        while are_prompts and prefill < max_source_length:
            self._prefill_lengths.append(prefill)
            prefill *= 4
        prompt_length = max_source_length if are_prompts else 1
        step = step_model(model, prompt_length + max_new_tokens - 1, target.name)

        def compiled_loop(prefill: int) -> Callable[..., dict[str, Tensor]]:
            loop = DecodingLoop(
                step,
                SearchSettings(
                    strategy,
                    TokenConstraints(
                        (tokenizer.end_token_id,),
                        banned_token_ids=default_banned_token_ids(model),
                    ),
                    tokenizer.start_token_id,
                    max_new_tokens,
                    prefill,
                    tokenizer.padding_id,
                    tokenizer.padding_id,
                ),
                transpose_weights=use_xla,
            )

            def search(token_ids: Tensor, draws: Tensor | None) -> dict[str, Tensor]:
                return loop(
                    {source.name: tf.cast(token_ids, source.dtype)}, draws=draws
                )

            return tf.function(search, autograph=False, jit_compile=use_xla)

        self._loops = [compiled_loop(prefill) for prefill in self._prefill_lengths]

    def __call__(self, token_ids: Tensor) -> dict[str, Tensor]:
        """Search for the hypotheses of a batch.

        Args:
            token_ids: int32 `(B, S)`, padded at the end. B and S may be 0.

        Returns:
            A dict of tensors, as `keras_attn.decoding.generate` returns it.
        """
        batch_size = tf.shape(token_ids)[0]
        padded_size = tf.maximum(batch_size, 1)
        if self._batch_sizes is not None:
            padded_size = shape_buckets.next_size(padded_size, self._batch_sizes)
        draws = self._draw(batch_size)
        if draws is not None:
            draws = shape_buckets.pad_batch(draws, padded_size)
            draws = tf.ensure_shape(draws, [None, self._max_new_tokens])
        token_ids = shape_buckets.pad_batch(
            token_ids, padded_size, self._padded_length(token_ids), self._padding_id
        )
        token_ids = tf.ensure_shape(token_ids, [None, self._fixed_length])
        branches = [functools.partial(loop, token_ids, draws) for loop in self._loops]
        if len(branches) == 1:
            results = branches[0]()
        else:
            shortest = tf.reduce_min(prompt_lengths(token_ids, self._padding_id))
            # The longest prefill for which all prompts have enough tokens.
            is_possible = tf.cast(shortest >= self._prefill_lengths, tf.int32)
            results = tf.switch_case(tf.reduce_sum(is_possible) - 1, branches)
        return {name: value[:batch_size] for name, value in results.items()}

    def _padded_length(self, token_ids: Tensor) -> Tensor | int:
        if self._fixed_length is not None:
            return self._fixed_length
        length = tf.maximum(tf.shape(token_ids)[1], 1)
        if self._lengths is None:
            return length
        return shape_buckets.next_size(length, self._lengths)

    def _draw(self, batch_size: Tensor) -> Tensor | None:
        """Return the random numbers of a request, which do not depend on padding."""
        if isinstance(self._strategy, Sampling) and self._strategy.seed is None:
            # `Sampling.draw` would choose one seed for all requests, when the graph is
            # traced. `tf.random.uniform` would depend on TensorFlow's global seed.
            return tf.raw_ops.RandomUniform(
                shape=[batch_size, self._max_new_tokens], dtype=tf.float32
            )
        return self._strategy.draw(batch_size, self._max_new_tokens)


def check_int(name: str, value: Any, minimum: int, reason: str = "") -> None:
    """Raise a ValueError if `value` is not an int of at least `minimum`.

    Args:
        name: The name of the argument.
        value: Its value.
        minimum: The smallest valid value.
        reason: The reason for the minimum, which follows it in the message.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(
            f"`{name}` must be an int of at least {minimum}{reason}. "
            f"Received: {name}={value!r}"
        )
