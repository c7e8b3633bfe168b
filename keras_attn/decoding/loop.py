"""The decoding loop around a step model and a strategy."""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn._types import Tensor
from keras_attn.decoding.step.step_model import StepModel
from keras_attn.decoding.strategies.base import State, Strategy
from keras_attn.decoding.strategies.logits_processors import TokenConstraints
from keras_attn.ops.matmul import TransposedWeights

__all__ = ["DecodingLoop", "SearchSettings", "prompt_lengths"]

# The variables of the loop: the next position, the tokens at the position before it
# `(B * K, 1)`, the cache, and the state of the strategy.
Carry = tuple[Tensor, Tensor, Any, State]


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """The settings of a search, apart from the model and its inputs.

    Attributes:
        strategy: a `Strategy`.
        constraints: the `TokenConstraints`.
        start_token_id: int, the prompt if there is none; or None.
        max_new_tokens: int L, the largest number of tokens.
        prefill_length: int, length of the shortest prompt.
        padding_id: int, padding after the end of results.
        prompt_padding_id: int, padding after the end of prompts.
    """

    strategy: Strategy
    constraints: TokenConstraints
    start_token_id: int | None
    max_new_tokens: int
    prefill_length: int = 1
    padding_id: int = 0
    prompt_padding_id: int = 0


class DecodingLoop:
    """A search as pure functions of tensors: as a whole, or one token at a time.

    Prompts of different lengths are processed together: one prefill processes the first
    `prefill_length` tokens of all prompts; the remaining tokens of longer prompts are
    fed one per step, in place of a generated token.

    Args:
        step: a `StepModel` for the prompt and `max_new_tokens - 1` tokens.
        settings: the `SearchSettings`.
        transpose_weights: bool, whether weight matrices are transposed once before the
            loop, which is faster if XLA compiles it; see `keras_attn.ops.matmul`.
    """

    def __init__(
        self, step: StepModel, settings: SearchSettings, transpose_weights: bool = False
    ) -> None:
        self.step = step
        self.settings = settings
        self.strategy: Strategy = settings.strategy
        self.transpose_weights = transpose_weights

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        prefix: Tensor | None = None,
        draws: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Run the search.

        Args:
            inputs: dict of the model's inputs.
            prefix: see `TokenConstraints.apply`.
            draws: the value of `Strategy.draw`.

        Returns:
            The results of the strategy, with padding after the end.
        """
        weights = TransposedWeights()
        with weights if self.transpose_weights else contextlib.nullcontext():
            fixed, carry = self._before_loop(inputs, prefix, draws)

            def is_unfinished(
                position: Tensor, tokens: Tensor, cache: Any, state: State
            ) -> Tensor:
                return ops.logical_not(ops.all(state["finished"]))

            def body(
                position: Tensor, tokens: Tensor, cache: Any, state: State
            ) -> Carry:
                weights.opaque_zero = position < 0
                return self.advance(fixed, (position, tokens, cache, state))

            *_, state = ops.while_loop(is_unfinished, body, carry)
        results = self.strategy.results(state)
        is_token = _first(results["lengths"], self.settings.max_new_tokens)
        token_ids = ops.where(is_token, results["token_ids"], self.settings.padding_id)
        return {**results, "token_ids": token_ids}

    def begin(
        self,
        inputs: Mapping[str, Tensor],
        prefix: Tensor | None = None,
        draws: Tensor | None = None,
    ) -> tuple[dict[str, Any], Carry]:
        """Process the prompt, and choose the token after its prefill.

        Returns:
            A tuple of a dict of tensors that do not change, and the loop variables.
        """
        fixed, carry = self._before_loop(inputs, prefix, draws)
        if self.settings.prefill_length == 1:
            carry = self.advance(fixed, carry)
        return fixed, carry

    def _before_loop(
        self,
        inputs: Mapping[str, Tensor],
        prefix: Tensor | None,
        draws: Tensor | None,
    ) -> tuple[dict[str, Any], Carry]:
        """Process the prompt like `begin`, except for a prefill of one token.

        The first call of `advance` processes that token: XLA then compiles one step
        instead of two.
        """
        step, beams = self.step, self.strategy.num_beams
        prompt = inputs.get(step.target)
        if prompt is None:
            batch_size = ops.shape(next(iter(inputs.values())))[0]
            shape = (batch_size, 1)
            prompt = ops.full(shape, self.settings.start_token_id, dtype="int32")
        batch_size = ops.shape(prompt)[0]
        frontier, cache = step.encode(inputs), step.empty_cache(batch_size)
        tokens, logits, cache = self._prefill(prompt, frontier, cache)
        if beams > 1:  # From here on, the beams are batch elements of the step model.
            repeats = ops.repeat(ops.arange(batch_size, dtype="int32"), beams)
            frontier = {
                name: leaf if name in step.contexts else _gather(leaf, repeats)
                for name, leaf in frontier.items()
            }
            cache = _gather(cache, repeats, step.cache_spec)
            tokens = _gather(tokens, repeats)
            logits = None if logits is None else _gather(logits, repeats)
        lengths = prompt_lengths(prompt, self.settings.prompt_padding_id)
        is_token = _first(lengths, ops.shape(prompt)[1])
        state = self.strategy.start(
            ops.where(is_token, prompt, -1),
            self.settings.max_new_tokens,
            step.output["logits"].shape[-1],
            draws,
        )
        fixed = {"prompt": prompt, "lengths": lengths, "frontier": frontier}
        if prefix is not None:
            fixed["prefix"] = prefix
        position = ops.full((), self.settings.prefill_length, dtype="int32")
        if logits is None:
            return fixed, (position, tokens, cache, state)
        return fixed, self._choose(fixed, position, logits, cache, state)

    def _prefill(
        self, prompt: Tensor, frontier: dict[str, Tensor], cache: Any
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Process the first positions of the prompt in one step, if there are several.

        Returns:
            A tuple of the last of these tokens `(B, 1)`, the logits after it, or None,
            and the cache.
        """
        length, start = self.settings.prefill_length, ops.zeros((), dtype="int32")
        first = ops.cast(prompt[:, :length], "int32")
        if length > 1:
            logits, cache = self.step.step(first, start, frontier, cache)
            return first[:, -1:], logits[:, -1], cache
        if self.transpose_weights:
            # Only for the weights that it transposes: the rest of this step has no use,
            # and is not computed.
            self.step.step(first, start, frontier, cache)
        return first[:, -1:], None, cache

    def advance(self, fixed: dict[str, Any], carry: Carry) -> Carry:
        """Process the last tokens and choose the next ones."""
        position, tokens, cache, state = carry
        logits, cache = self.step.step(tokens, position - 1, fixed["frontier"], cache)
        return self._choose(fixed, position, logits[:, -1], cache, state)

    def _choose(
        self,
        fixed: dict[str, Any],
        position: Tensor,
        logits: Tensor,
        cache: Any,
        state: State,
    ) -> Carry:
        """Choose the tokens at `position` from their logits `(B * K, V)`."""
        beams, prompt, settings = (
            self.strategy.num_beams,
            fixed["prompt"],
            self.settings,
        )
        logits = ops.cast(logits, "float32")
        logits = ops.reshape(logits, (-1, beams, logits.shape[-1]))
        log_probabilities = ops.log_softmax(logits, axis=-1)
        count = position - fixed["lengths"]  # negative inside a longer prompt
        logits = settings.constraints.apply(logits, count, fixed.get("prefix"))
        log_probabilities = ops.where(logits > -np.inf, log_probabilities, -np.inf)
        new, tokens, parents = self.strategy.advance(
            state,
            logits,
            log_probabilities,
            ops.clip(count, 0, settings.max_new_tokens - 1),
            settings.constraints.end_token_ids,
        )
        # The state of a batch element changes only after its whole prompt was processed
        # and until its search has finished.
        is_active = ops.logical_and(count >= 0, ops.logical_not(state["finished"]))
        state = {name: _select(is_active, new[name], state[name]) for name in state}
        tokens = _select(is_active, tokens, settings.padding_id)
        prompt_size = prompt.shape[1]
        if prompt_size is None or prompt_size > settings.prefill_length:
            index = ops.clip(position, 0, ops.shape(prompt)[1] - 1)
            prompt_tokens = ops.take(prompt, index[None], axis=1)
            tokens = ops.where(count[:, None] < 0, prompt_tokens, tokens)
        if parents is not None:
            itself = ops.arange(beams, dtype="int32")[None]
            parents = _select(is_active, parents, itself)
            elements = ops.arange(ops.shape(prompt)[0], dtype="int32")
            indices = ops.reshape(elements[:, None] * beams + parents, (-1,))
            cache = _gather(cache, indices, self.step.cache_spec)
        return position + 1, ops.reshape(tokens, (-1, 1)), cache, state


def prompt_lengths(prompt: Tensor, padding_id: int) -> Tensor:
    """Return the number of tokens of each prompt, int32 `(B,)`.

    The first token always counts: some models start with the padding id.
    """
    is_token = ops.not_equal(prompt[:, 1:], padding_id)
    return 1 + ops.sum(ops.cast(is_token, "int32"), axis=1)


def _first(lengths: Tensor, size: Any) -> Tensor:
    """Return bool `(..., size)`, True at the first `lengths` entries."""
    return ops.arange(size, dtype="int32") < ops.expand_dims(lengths, -1)


def _gather(structure: Any, indices: Tensor, spec: Any = None) -> Any:
    """Gather batch elements of nested tensors.

    Args:
        structure: nested tensors with the batch as their first axis.
        indices: int32, of batch elements.
        spec: nested `keras.KerasTensor`s for a batch of one, for tensors with several
            entries per batch element.
    """

    def gather(leaf: Tensor, entries: int) -> Tensor:
        positions = indices
        if entries > 1:
            positions = indices[:, None] * entries + ops.arange(entries, dtype="int32")
        return ops.take(leaf, ops.reshape(positions, (-1,)), axis=0)

    if spec is None:
        return keras.tree.map_structure(lambda leaf: gather(leaf, 1), structure)
    return keras.tree.map_structure(
        lambda leaf, like: gather(leaf, like.shape[0]), structure, spec
    )


def _select(is_active: Tensor, new: Tensor, old: Any) -> Tensor:
    """Return `new` for the active batch elements, and `old` for the others."""
    condition = ops.reshape(is_active, (-1,) + (1,) * (len(new.shape) - 1))
    return ops.where(condition, new, old)
