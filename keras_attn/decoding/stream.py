"""Generation that yields each token as soon as it is chosen."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from keras import ops

from keras_attn._types import Model
from keras_attn.decoding.compile import compile_function
from keras_attn.decoding.config import GenerationConfig, as_config
from keras_attn.decoding.request import Request
from keras_attn.decoding.strategies.base import TokenwiseStrategy

__all__ = ["stream"]


def stream(
    model: Model,
    inputs: Any,
    *,
    max_new_tokens: int | None = None,
    start_token_id: int | None = None,
    end_token_id: Any = None,
    strategy: Any = None,
    config: GenerationConfig | None = None,
    min_new_tokens: int | None = None,
    prefix: Any = None,
    banned_token_ids: Any = None,
    padding_id: int | None = None,
    target: str | None = None,
    output: str | None = None,
) -> Iterator[np.ndarray]:
    """Generate like `generate`, and yield each token as soon as it is chosen.

    The tokens are those of `generate` with the same arguments. Each one is a call of a
    compiled step from Python, while `generate` loops inside the graph.

    Args:
        model, inputs, max_new_tokens, start_token_id, end_token_id, config,
            min_new_tokens, prefix, banned_token_ids, padding_id, target, output: see
            `generate`.
        strategy: one that decides each token before the next one: a `GreedySearch`
            (default), `Sampling`, or a sampler object of `keras_hub.samplers`.

    Returns:
        An iterator over NumPy arrays int32 `(B,)`, the next token of each batch
        element; `padding_id` for one that has ended, or whose prompt is not yet read to
        its end.

    Raises:
        ValueError: as `generate`, immediately; and for a beam search, whose first token
            is not known before the last one.

    Example:
        >>> from keras_attn import decoding, models
        >>> model = models.causal_language_model(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> tokens = [*decoding.stream(model, [[5, 6]], max_new_tokens=3)]
        >>> len(tokens), tokens[0].shape
        (3, (1,))
    """
    config = as_config(config).update(
        max_new_tokens=max_new_tokens,
        start_token_id=start_token_id,
        end_token_id=end_token_id,
        strategy=strategy,
        min_new_tokens=min_new_tokens,
        prefix=prefix,
        banned_token_ids=banned_token_ids,
        padding_id=padding_id,
        target=target,
        output=output,
    )
    strategy = config.get_strategy()
    if not isinstance(strategy, TokenwiseStrategy):
        raise ValueError(
            "`strategy` must decide each token before the next one to be streamed; use "
            f"`generate`. Received: strategy={strategy!r}"
        )
    request = Request(model, inputs, config)

    def make_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
        loop, variables = request.loop(), request.model.variables
        return (
            compile_function(loop.begin, variables),
            compile_function(loop.advance, variables),
        )

    return _tokens(request, *request.cached("stream", make_functions))


def _tokens(
    request: Request, begin: Callable[..., Any], advance: Callable[..., Any]
) -> Iterator[np.ndarray]:
    if not request.batch_size:
        return
    fixed, carry = begin(request.inputs, request.prefix, request.draws())
    lengths = 0
    while True:
        *_, tokens, _, state = carry
        previous, lengths = lengths, ops.convert_to_numpy(state["lengths"])
        is_new = lengths > previous
        if is_new.any():
            tokens = ops.convert_to_numpy(tokens)[:, 0]
            padding_id = tokens.dtype.type(request.settings.padding_id)
            yield np.where(is_new, tokens, padding_id)
        if ops.convert_to_numpy(state["finished"]).all():
            return
        carry = advance(fixed, carry)
