"""The loop around a step model and a strategy."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_attn.ops.products import KernelsTransposedOnce

__all__ = ["decoding_loop", "prompt_lengths"]


def decoding_loop(
    step,
    strategy,
    constraints,
    start_token_id,
    max_length,
    prefill=1,
    transpose_kernels=False,
):
    """The whole search as one pure function of tensors.

    Prompts of different lengths go through together: the first `prefill` positions at
    once, the rest of a longer prompt one by one in place of what was chosen.

    Args:
        step: a `StepModel` with room for the prompt and `max_length - 1` tokens.
        strategy: a `Strategy`.
        constraints: a `Constraints`.
        start_token_id: int, the prompt of rows that come without one.
        max_length: int, how many tokens a row is given at most.
        prefill: int, length of the shortest prompt.
        transpose_kernels: bool, whether kernels are transposed once, before the loop,
            as is best where XLA compiles it; see `keras_attn.ops.products`.

    Returns:
        A function from `(inputs, prefix=None, draws=None)` to the results: the dict of
        the model's inputs, `Constraints.apply`'s prefix, `Strategy.draw`'s numbers.
    """
    beams = strategy.num_beams

    def loop(inputs, prefix=None, draws=None):
        kernels = KernelsTransposedOnce()
        with kernels if transpose_kernels else contextlib.nullcontext():
            return search(kernels, inputs, prefix, draws)

    def search(kernels, inputs, prefix, draws):
        prompt = inputs.get(step.target)
        if prompt is None:
            rows = ops.shape(next(iter(inputs.values())))[0]
            prompt = ops.full((rows, 1), start_token_id, dtype="int32")
        rows, room = ops.shape(prompt)[0], prompt.shape[1]
        lengths = prompt_lengths(prompt)
        frontier = step.encode(inputs)
        start = ops.convert_to_tensor(0, dtype="int32")
        logits, cache = step.step(
            prompt[:, :prefill], start, frontier, step.empty_cache(rows)
        )
        vocabulary_size = logits.shape[-1]
        # From here on, a row's hypotheses are rows.
        logits = logits[:, -1]
        if beams > 1:
            itself = ops.repeat(ops.arange(rows, dtype="int32"), beams)
            logits = _take_rows(logits, itself)
            frontier = {
                name: leaf if name in step.contexts else _take_rows(leaf, itself)
                for name, leaf in frontier.items()
            }
            cache = _take_rows(cache, itself, step.cache_spec)
        state = strategy.start(prompt, max_length, vocabulary_size, draws)

        def choose(position, logits, cache, state):
            """Settles the token at `position`, for which `logits` speak."""
            logits = ops.cast(logits, "float32")
            logits = ops.reshape(logits, (-1, beams, vocabulary_size))
            scores = ops.log_softmax(logits, axis=-1)
            count = position - lengths
            logits = constraints.apply(logits, count, prefix)
            scores = ops.where(logits > -np.inf, scores, -np.inf)
            within = ops.clip(count, 0, max_length - 1)
            new, tokens, parents = strategy.advance(
                state, logits, scores, within, constraints.end_token_ids
            )
            # A row that has ended stays as it is, one in its prompt as it was.
            live = ops.logical_and(count >= 0, ops.logical_not(state["finished"]))
            state = {name: _select(live, new[name], state[name]) for name in state}
            tokens = _select(live, tokens, 0)
            if room > prefill:
                place = ops.clip(position, 0, room - 1)
                given = ops.take(prompt, place[None], axis=1)
                tokens = ops.where(count[:, None] < 0, given, tokens)
            if parents is not None:
                itself = ops.arange(beams, dtype="int32")[None]
                parents = _select(live, parents, itself)
                first = ops.arange(rows, dtype="int32")[:, None] * beams
                chosen = ops.reshape(first + parents, (-1,))
                cache = _take_rows(cache, chosen, step.cache_spec)
            return ops.reshape(tokens, (-1, 1)), cache, state

        def unfinished(position, tokens, cache, state):
            return ops.logical_not(ops.all(state["finished"]))

        def body(position, tokens, cache, state):
            kernels.zero = position < 0
            logits, cache = step.step(tokens, position - 1, frontier, cache)
            tokens, cache, state = choose(position, logits[:, -1], cache, state)
            return position + 1, tokens, cache, state

        position = start + prefill
        tokens, cache, state = choose(position, logits, cache, state)
        *_, state = ops.while_loop(
            unfinished, body, (position + 1, tokens, cache, state)
        )
        return strategy.results(state)

    return loop


def prompt_lengths(prompt):
    """Number of tokens before the padding, int32 `(B,)`.

    The first is one whatever its id: some models start with the padding id.
    """
    return 1 + ops.sum(ops.cast(ops.not_equal(prompt[:, 1:], 0), "int32"), axis=1)


def _take_rows(structure, rows, spec=None):
    """The rows of these numbers, of tensors with one entry for each row, or as many as
    in a `spec` for a batch of one."""

    def take(leaf, entries):
        numbers = rows
        if entries > 1:
            numbers = rows[:, None] * entries + ops.arange(entries, dtype="int32")
        return ops.take(leaf, ops.reshape(numbers, (-1,)), axis=0)

    if spec is None:
        return keras.tree.map_structure(lambda leaf: take(leaf, 1), structure)
    return keras.tree.map_structure(
        lambda leaf, like: take(leaf, like.shape[0]), structure, spec
    )


def _select(live, new, old):
    """`new` in the rows that live, else `old`."""
    return ops.where(ops.reshape(live, (-1,) + (1,) * (len(new.shape) - 1)), new, old)
