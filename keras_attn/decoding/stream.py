"""Generation that hands over each token as it comes."""

import numpy as np
from keras import ops

from keras_attn.decoding.compile import compiled
from keras_attn.decoding.request import Request
from keras_attn.decoding.strategies.greedy_search import OneByOne

__all__ = ["stream"]


def stream(
    model,
    inputs,
    start_token_id=None,
    end_token_id=None,
    max_length=128,
    strategy=None,
    target=None,
    *,
    prefix=None,
    min_length=0,
    banned_token_ids=(),
    output=None,
    padding_id=None,
):
    """Generates as `generate` does, and yields each token as soon as it is chosen.

    The tokens are those of `generate` with the same arguments. Each costs a call of a
    compiled step from Python, where `generate` loops in the graph.

    Args:
        model, inputs, start_token_id, end_token_id, max_length, target, prefix,
            min_length, banned_token_ids, output, padding_id: see `generate`.
        strategy: one that settles tokens as it goes: `GreedySearch()` (default),
            `Sampling()`, or a sampler of `keras_nlp.samplers`.

    Returns:
        An iterator over NumPy arrays int32 `(B,)`, the next token of each row;
        `padding_id` in a row that has ended, or that still reads a prompt longer than
        others.

    Raises:
        ValueError: as `generate`, at once; and for a beam search, which does not know
            its first token before the last.

    Example:
        >>> for (token,) in stream(model, {"target": prompt_ids}, end_token_id=3):
        ...     print(tokenizer.detokenize([token]), end="")
    """
    request = Request(
        model,
        inputs,
        start_token_id,
        end_token_id,
        max_length,
        strategy,
        target,
        output,
        prefix,
        min_length,
        banned_token_ids,
        padding_id,
    )
    if not isinstance(request.search.strategy, OneByOne):
        raise ValueError(
            "`strategy` must settle each token as it goes, to be streamed; use "
            f"`generate`. Received: strategy={strategy!r}"
        )

    def functions():
        loop, variables = request.loop(), request.model.variables
        return compiled(loop.begin, variables), compiled(loop.advance, variables)

    return _tokens(request, *request.keep("stream", functions))


def _tokens(request, begin, advance):
    if not request.rows:
        return
    fixed, carried = begin(request.inputs, request.prefix, request.draws())
    lengths = 0
    while True:
        *_, tokens, _, state = carried
        before, lengths = lengths, ops.convert_to_numpy(state["lengths"])
        is_new = lengths > before
        if is_new.any():
            tokens = ops.convert_to_numpy(tokens)[:, 0]
            padding_id = tokens.dtype.type(request.search.padding_id)
            yield np.where(is_new, tokens, padding_id)
        if ops.convert_to_numpy(state["finished"]).all():
            return
        carried = advance(fixed, carried)
