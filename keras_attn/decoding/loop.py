"""The loop around a step model and a strategy."""

import contextlib
import dataclasses

import keras
import numpy as np
from keras import ops

from keras_attn.decoding.strategies.base import Strategy
from keras_attn.decoding.strategies.logits_processors import Constraints
from keras_attn.ops.matmul import KernelsTransposedOnce

__all__ = ["DecodingLoop", "Search", "prompt_lengths"]


@dataclasses.dataclass(frozen=True)
class Search:
    """What a search depends on, besides the model and its inputs.

    Attributes:
        strategy: a `Strategy`.
        constraints: a `Constraints`.
        start_token_id: int, the prompt of rows that come without one; or None, where
            all bring theirs.
        max_length: int, how many tokens a row is given at most.
        prefill: int, length of the shortest prompt.
        padding_id: int, what stands after the end of results.
        prompt_padding_id: int, what stands after the end of prompts.
    """

    strategy: Strategy
    constraints: Constraints
    start_token_id: int | None
    max_length: int
    prefill: int = 1
    padding_id: int = 0
    prompt_padding_id: int = 0


class DecodingLoop:
    """A search, as pure functions of tensors: whole, or one token at a time.

    Prompts of different lengths go through together: the first `prefill` positions at
    once, the rest of a longer prompt one by one in place of what was chosen.

    Args:
        step: a `StepModel` with room for the prompt and `max_length - 1` tokens.
        search: a `Search`.
        transpose_kernels: bool, whether kernels are transposed once, before the loop,
            as is best where XLA compiles it; see `keras_attn.ops.matmul`.
    """

    def __init__(self, step, search, transpose_kernels=False):
        self.step = step
        self.search = search
        self.strategy = search.strategy
        self.transpose_kernels = transpose_kernels

    def __call__(self, inputs, prefix=None, draws=None):
        """The whole search.

        Args:
            inputs: dict of the model's inputs.
            prefix: what `Constraints.apply` takes.
            draws: what `Strategy.draw` gives.

        Returns:
            The strategy's results, filled up with padding.
        """
        kernels = KernelsTransposedOnce()
        with kernels if self.transpose_kernels else contextlib.nullcontext():
            fixed, carried = self._before_loop(inputs, prefix, draws)

            def unfinished(position, tokens, cache, state):
                return ops.logical_not(ops.all(state["finished"]))

            def body(position, tokens, cache, state):
                kernels.zero = position < 0
                return self.advance(fixed, (position, tokens, cache, state))

            *_, state = ops.while_loop(unfinished, body, carried)
        found = self.strategy.results(state)
        is_token = _first(found["lengths"], self.search.max_length)
        token_ids = ops.where(is_token, found["token_ids"], self.search.padding_id)
        return {**found, "token_ids": token_ids}

    def begin(self, inputs, prefix=None, draws=None):
        """The prompt, and the token that follows its first `prefill` positions.

        Returns:
            A pair: what stays as it is, a dict of tensors, and what goes from one
            token to the next: the next position, the tokens to feed there, the cache,
            the strategy's state.
        """
        fixed, carried = self._before_loop(inputs, prefix, draws)
        if self.search.prefill == 1:
            carried = self.advance(fixed, carried)
        return fixed, carried

    def _before_loop(self, inputs, prefix, draws):
        """What `begin` gives; but a first position that is alone is left to `advance`.

        It is the loop's own first step then, and there is one less to compile.
        """
        step, beams, prefill = self.step, self.strategy.num_beams, self.search.prefill
        prompt = inputs.get(step.target)
        if prompt is None:
            rows = ops.shape(next(iter(inputs.values())))[0]
            prompt = ops.full((rows, 1), self.search.start_token_id, dtype="int32")
        rows = ops.shape(prompt)[0]
        start = ops.zeros((), dtype="int32")
        first = ops.cast(prompt[:, :prefill], "int32")
        frontier, cache = step.encode(inputs), step.empty_cache(rows)
        tokens, logits = first[:, -1:], None
        if prefill > 1:
            logits, cache = step.step(first, start, frontier, cache)
            logits = logits[:, -1]
        elif self.transpose_kernels:
            # For the kernels that it transposes: what else there is of it is not used,
            # and so not computed.
            step.step(first, start, frontier, cache)
        if beams > 1:  # From here on, a row's hypotheses are rows.
            itself = ops.repeat(ops.arange(rows, dtype="int32"), beams)
            frontier = {
                name: leaf if name in step.contexts else _take_rows(leaf, itself)
                for name, leaf in frontier.items()
            }
            cache = _take_rows(cache, itself, step.cache_spec)
            tokens = _take_rows(tokens, itself)
            logits = None if logits is None else _take_rows(logits, itself)
        lengths = prompt_lengths(prompt, self.search.prompt_padding_id)
        is_token = _first(lengths, ops.shape(prompt)[1])
        state = self.strategy.start(
            ops.where(is_token, prompt, -1),
            self.search.max_length,
            step.output["logits"].shape[-1],
            draws,
        )
        fixed = {"prompt": prompt, "lengths": lengths, "frontier": frontier}
        if prefix is not None:
            fixed["prefix"] = prefix
        position = start + prefill
        if logits is None:
            return fixed, (position, tokens, cache, state)
        return fixed, self._choose(fixed, position, logits, cache, state)

    def advance(self, fixed, carried):
        """One token more: from what `begin` or `advance` carried to the next of it."""
        position, tokens, cache, state = carried
        logits, cache = self.step.step(tokens, position - 1, fixed["frontier"], cache)
        return self._choose(fixed, position, logits[:, -1], cache, state)

    def _choose(self, fixed, position, logits, cache, state):
        """Settles the token at `position`, for which `logits` speak."""
        beams, prompt = self.strategy.num_beams, fixed["prompt"]
        logits = ops.cast(logits, "float32")
        logits = ops.reshape(logits, (-1, beams, logits.shape[-1]))
        scores = ops.log_softmax(logits, axis=-1)
        count = position - fixed["lengths"]
        logits = self.search.constraints.apply(logits, count, fixed.get("prefix"))
        scores = ops.where(logits > -np.inf, scores, -np.inf)
        new, tokens, parents = self.strategy.advance(
            state,
            logits,
            scores,
            ops.clip(count, 0, self.search.max_length - 1),
            self.search.constraints.end_token_ids,
        )
        # A row that has ended stays as it is, one in its prompt as it was.
        live = ops.logical_and(count >= 0, ops.logical_not(state["finished"]))
        state = {name: _select(live, new[name], state[name]) for name in state}
        tokens = _select(live, tokens, self.search.padding_id)
        room = prompt.shape[1]
        if room is None or room > self.search.prefill:
            place = ops.clip(position, 0, ops.shape(prompt)[1] - 1)
            given = ops.take(prompt, place[None], axis=1)
            tokens = ops.where(count[:, None] < 0, given, tokens)
        if parents is not None:
            parents = _select(live, parents, ops.arange(beams, dtype="int32")[None])
            rows = ops.arange(ops.shape(prompt)[0], dtype="int32")
            chosen = ops.reshape(rows[:, None] * beams + parents, (-1,))
            cache = _take_rows(cache, chosen, self.step.cache_spec)
        return position + 1, ops.reshape(tokens, (-1, 1)), cache, state


def prompt_lengths(prompt, padding_id):
    """Number of tokens before the padding, int32 `(B,)`.

    The first is one whatever its id: some models start with the padding id.
    """
    is_token = ops.not_equal(prompt[:, 1:], padding_id)
    return 1 + ops.sum(ops.cast(is_token, "int32"), axis=1)


def _first(lengths, size):
    """Bool `(..., size)`, True at so many first places."""
    return ops.arange(size, dtype="int32") < ops.expand_dims(lengths, -1)


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
