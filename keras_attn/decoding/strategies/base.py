"""What every strategy is: how tokens are chosen, apart from the loop that asks."""

import dataclasses

__all__ = ["Strategy"]


@dataclasses.dataclass(frozen=True)
class Strategy:
    """Base of the ways to choose tokens. A value, without state of its own.

    `generate` asks `start` for a state, `advance` for each next token, and `results`
    at the end. A state is a dict of tensors with the batch as their first axis. The
    loop keeps the state of a row that has ended, so no strategy need look at that.
    """

    @property
    def num_beams(self):
        """How many hypotheses of a row are carried along, K."""
        return 1

    def start(self, prompt, max_length, vocabulary_size, draws=None):
        """The state before the first token.

        Args:
            prompt: int32 `(B, P)`, the tokens that were there before, and -1 after
                those of a shorter one.
            max_length: int L.
            vocabulary_size: int V.
            draws: what `draw` gave.

        Returns:
            A dict of tensors `(B, ...)`; `"finished"`, bool `(B,)`, is among them.
        """
        raise NotImplementedError

    def advance(self, state, logits, log_probabilities, count, end_token_ids):
        """The state with one token more.

        Args:
            state: what `start` or `advance` gave.
            logits: float32 `(B, K, V)`, minus infinity where a token may not follow.
            log_probabilities: likewise, their log-softmax (over all tokens, those
                that may not follow as well).
            count: int32 `(B,)`, how many tokens each row has been given.
            end_token_ids: a tuple of ints.

        Returns:
            A triple of the new state, the tokens to feed next, int32 `(B, K)`, and
            which hypothesis each continues, int32 `(B, K)`, or None where each
            continues itself.
        """
        raise NotImplementedError

    def results(self, state):
        """`"token_ids"` `(B, R, L)`, `"scores"` and `"lengths"` `(B, R)`.

        What stands after so many tokens of a row does not matter.
        """
        raise NotImplementedError

    def draw(self, batch_size, max_length):
        """Random numbers for a whole search, `(B, L)`, or None."""
        return None
