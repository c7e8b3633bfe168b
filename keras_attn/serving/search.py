"""The search for token sequences in a served graph: any batch, a few programs."""

import functools

import tensorflow as tf

from keras_attn.decoding import GreedySearch, Sampling, Strategy
from keras_attn.decoding.compile import uses_xla
from keras_attn.decoding.loop import DecodingLoop, Search, prompt_lengths
from keras_attn.decoding.step import step_model
from keras_attn.decoding.strategies.logits_processors import Constraints
from keras_attn.serving import shape_buckets

__all__ = ["ServedSearch", "check_int"]

# The shortest length that ids are padded to.
SHORTEST = 16


class ServedSearch:
    """A `DecodingLoop` as a function of ids, to stand in a graph of strings.

    With XLA, each shape that the loop is given takes seconds to compile. So ids are
    padded to the next power of two from 16 on (or to `longest`), and batches
    with copies of their first row to the next power of two, which is cut off again.
    Masks see to it that no answer depends on either.

    Ids that are prompts all get the length `longest`, for caches have a fixed one. A
    prompt's first tokens go through the model at once: as many as all prompts of a
    batch have, rounded down to 1, 16, 64 and so on, a loop to each of these below
    `longest`. The others go one by one, each at the cost of a generated token.

    Args:
        model: the model to decode.
        ids: its input that is given, a `keras.KerasTensor`.
        target: its input that grows, likewise; `ids` where prompts are given.
        tokenizer: the tokenizer of what is generated.
        padding_id: int, what the given ids are padded with.
        strategy: a `keras_attn.decoding.Strategy`; None for `GreedySearch()`.
        max_length: int L, how many tokens are generated at most.
        longest: int, how many ids a row has at most; others than prompts may be
            longer.
        jit_compile: bool or `"auto"`, see `keras_attn.decoding.generate`.

    Raises:
        ValueError: for another strategy, or a model that cannot be decoded step by
            step.
    """

    def __init__(
        self,
        model,
        ids,
        target,
        tokenizer,
        padding_id,
        strategy,
        max_length,
        longest,
        jit_compile,
    ):
        strategy = GreedySearch() if strategy is None else strategy
        if not isinstance(strategy, Strategy):
            raise ValueError(
                "`strategy` must be one of `keras_attn.decoding`'s, such as "
                f"`GreedySearch()`. Received: strategy={strategy!r}"
            )
        self._strategy = strategy
        self._padding_id = padding_id
        self._max_length = max_length
        jit_compile = uses_xla(jit_compile, model, max_length)
        are_prompts = ids is target
        self._fixed_length = longest if are_prompts else ids.shape[1]
        self._row_sizes = self._length_sizes = None
        if jit_compile:
            self._row_sizes = shape_buckets.doubling(1)
            self._length_sizes = shape_buckets.doubling(SHORTEST, through=longest)
        self._prefills, prefill = [1], SHORTEST
        while are_prompts and prefill < longest:
            self._prefills.append(prefill)
            prefill *= 4
        room = longest if are_prompts else 1
        step = step_model(model, room + max_length - 1, target.name)

        def compiled(prefill):
            loop = DecodingLoop(
                step,
                Search(
                    strategy,
                    Constraints((tokenizer.end_token_id,)),
                    tokenizer.start_token_id,
                    max_length,
                    prefill,
                    tokenizer.padding_id,
                    tokenizer.padding_id,
                ),
                transpose_kernels=jit_compile,
            )

            def search(given, draws):
                return loop({ids.name: tf.cast(given, ids.dtype)}, draws=draws)

            return tf.function(search, autograph=False, jit_compile=jit_compile)

        self._loops = [compiled(prefill) for prefill in self._prefills]

    def __call__(self, ids):
        """What is found, as `keras_attn.decoding.generate` gives it.

        Args:
            ids: int32 `(B, S)`, padded at the end; B and S may be 0.
        """
        rows = tf.shape(ids)[0]
        size = tf.maximum(rows, 1)
        if self._row_sizes is not None:
            size = shape_buckets.next_size(size, self._row_sizes)
        draws = self._draw(rows)
        if draws is not None:
            draws = shape_buckets.padded(draws, size)
            draws = tf.ensure_shape(draws, [None, self._max_length])
        ids = shape_buckets.padded(ids, size, self._length(ids), self._padding_id)
        ids = tf.ensure_shape(ids, [None, self._fixed_length])
        branches = [functools.partial(loop, ids, draws) for loop in self._loops]
        if len(branches) == 1:
            found = branches[0]()
        else:
            shortest = tf.reduce_min(prompt_lengths(ids, self._padding_id))
            # How many of the prefills there are tokens enough for.
            enough = tf.cast(shortest >= self._prefills, tf.int32)
            found = tf.switch_case(tf.reduce_sum(enough) - 1, branches)
        return {name: value[:rows] for name, value in found.items()}

    def _length(self, ids):
        if self._fixed_length is not None:
            return self._fixed_length
        length = tf.maximum(tf.shape(ids)[1], 1)
        if self._length_sizes is None:
            return length
        return shape_buckets.next_size(length, self._length_sizes)

    def _draw(self, rows):
        """The random numbers of one request: a row's do not depend on the padding."""
        if isinstance(self._strategy, Sampling) and self._strategy.seed is None:
            # `Sampling.draw` would choose a seed while the graph is traced, once for
            # all requests, and `tf.random.uniform` keep a global one.
            return tf.raw_ops.RandomUniform(
                shape=[rows, self._max_length], dtype=tf.float32
            )
        return self._strategy.draw(rows, self._max_length)


def check_int(name, value, least, what):
    """Raise a ValueError where `value` is not an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(
            f"`{name}` must be an int of at least {least}{what}. "
            f"Received: {name}={value!r}"
        )
