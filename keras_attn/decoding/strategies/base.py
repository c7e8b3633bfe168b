"""The interface of decoding strategies: how tokens are chosen from logits."""

import dataclasses
from typing import Any

from keras import ops

from keras_attn._types import Tensor
from keras_attn.ops import kv_cache

__all__ = ["State", "Strategy", "TokenwiseStrategy", "is_any_of"]

# The state of a search: tensors with the batch as their first axis.
State = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Strategy:
    """Base of the strategies that choose tokens. A value, without a state of its own.

    The decoding loop calls `start` for the initial state, `advance` for each token, and
    `results` at the end. It keeps the state of a batch element that is finished, so
    that a strategy need not handle it.
    """

    @property
    def num_beams(self) -> int:
        """Number K of hypotheses that are kept for a batch element."""
        return 1

    def without_seed(self) -> "Strategy":
        """Return the strategy that a compiled search depends on.

        The random numbers are arguments of the search, so that strategies that differ
        only in a seed share a program.
        """
        return self

    def start(
        self,
        prompt: Tensor,
        max_new_tokens: int,
        vocabulary_size: int,
        draws: Tensor | None = None,
    ) -> State:
        """Return the state before the first token.

        Args:
            prompt: int32 `(B, P)`, the prompts, with -1 for padding.
            max_new_tokens: int L.
            vocabulary_size: int V.
            draws: the value of `draw`.

        Returns:
            A dict of tensors `(B, ...)`, with `"finished"`, bool `(B,)`.
        """
        raise NotImplementedError

    def advance(
        self,
        state: State,
        logits: Tensor,
        log_probabilities: Tensor,
        count: Tensor,
        end_token_ids: tuple[int, ...],
    ) -> tuple[State, Tensor, Tensor | None]:
        """Choose the next token of each hypothesis.

        Args:
            state: the value of `start` or of the previous `advance`.
            logits: float32 `(B, K, V)`, minus infinity for forbidden tokens.
            log_probabilities: float32 `(B, K, V)`, the log-softmax over all tokens,
                minus infinity for forbidden ones.
            count: int32 `(B,)`, number of tokens generated so far.
            end_token_ids: ids that end a hypothesis.

        Returns:
            A tuple of the new state, the tokens int32 `(B, K)`, and the index of the
            hypothesis that each one continues, int32 `(B, K)`, or None if each one
            continues itself.
        """
        raise NotImplementedError

    def results(self, state: State) -> State:
        """Return `"token_ids"` `(B, R, L)`, `"scores"` and `"lengths"` `(B, R)`.

        Entries of `"token_ids"` after the length of a hypothesis are ignored.
        """
        raise NotImplementedError

    def draw(self, batch_size: Any, max_new_tokens: int) -> Tensor | None:
        """Return the random numbers of a search, `(B, L, ...)`, or None."""
        return None


@dataclasses.dataclass(frozen=True)
class TokenwiseStrategy(Strategy):
    """Base of the strategies that decide each token before the next one."""

    def choose(self, state: State, logits: Tensor, count: Tensor) -> Tensor:
        """Return the next tokens, int32 `(B,)`, for logits `(B, V)`."""
        raise NotImplementedError

    def start(
        self,
        prompt: Tensor,
        max_new_tokens: int,
        vocabulary_size: int,
        draws: Tensor | None = None,
    ) -> State:
        batch_size = ops.shape(prompt)[0]
        return {
            "token_ids": ops.zeros((batch_size, max_new_tokens), dtype="int32"),
            "scores": ops.zeros((batch_size,), dtype="float32"),
            "lengths": ops.zeros((batch_size,), dtype="int32"),
            "finished": ops.zeros((batch_size,), dtype="bool"),
        }

    def advance(
        self,
        state: State,
        logits: Tensor,
        log_probabilities: Tensor,
        count: Tensor,
        end_token_ids: tuple[int, ...],
    ) -> tuple[State, Tensor, Tensor | None]:
        tokens = self.choose(state, logits[:, 0], count)
        gain = ops.take_along_axis(log_probabilities[:, 0], tokens[:, None], axis=1)
        lengths = count + 1
        new = {
            **state,
            "token_ids": kv_cache.scatter(state["token_ids"], tokens, count),
            "scores": state["scores"] + gain[:, 0],
            "lengths": lengths,
            "finished": ops.logical_or(
                is_any_of(tokens, end_token_ids),
                lengths >= state["token_ids"].shape[1],
            ),
        }
        return new, tokens[:, None], None

    def results(self, state: State) -> State:
        names = ("token_ids", "scores", "lengths")
        return {name: ops.expand_dims(state[name], axis=1) for name in names}


def is_any_of(tokens: Tensor, token_ids: tuple[int, ...]) -> Tensor:
    """Return whether each of `tokens` is one of `token_ids`, as a bool tensor."""
    result = ops.zeros_like(tokens, dtype="bool")
    for token_id in token_ids:
        result = ops.logical_or(result, ops.equal(tokens, token_id))
    return result
