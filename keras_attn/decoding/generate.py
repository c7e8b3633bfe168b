"""Generation of token sequences with a training model."""

from collections.abc import Callable
from typing import Any

from keras_attn._types import Model, Tensor
from keras_attn.decoding.alignment import TokenAlignment
from keras_attn.decoding.compile import compile_function, uses_xla
from keras_attn.decoding.config import GenerationConfig, as_config
from keras_attn.decoding.request import Request

__all__ = ["generate"]


def generate(
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
    return_alignment: bool = False,
    jit_compile: bool | str = "auto",
) -> dict[str, Tensor]:
    """Generate token sequences with a training model, step by step with a cache.

    The whole search is one loop, compiled on TensorFlow and JAX; it ends when every
    sequence has ended. The step model is derived from `model` on the first call and
    cached; the current weights are used.

    Args:
        model: a Functional model, see `step_model`.
        inputs: dict of the model's inputs, such as ids int32 `(B, S)`, or its only
            input. If the target is among them, `(B, P)` with P >= 1, it is the prompt;
            shorter prompts are padded at the end. Inputs that are aligned with the
            target, such as segment ids, have length P + L - 1, or P; then they are
            continued by their value at the last token of each prompt.
        max_new_tokens: int L, the largest number of tokens to generate. Default: 128.
        start_token_id: int, the first token of the target if there is no prompt.
        end_token_id: int or ints, the tokens that end a sequence. Default: none, and
            all sequences get `max_new_tokens` tokens.
        strategy: a `GreedySearch` (default), `BeamSearch` or `Sampling`, or a sampler
            object of `keras_hub.samplers`.
        config: a `GenerationConfig` with these options; keywords have precedence.
        min_new_tokens: int, no end token is generated among this number of first
            tokens.
        prefix: ints `(F,)` or `(B, F)`, the tokens that each generated sequence begins
            with; shorter ones are padded at the end.
        banned_token_ids: ints, tokens that are never generated. Default: those of a
            published model, see `checkpoints.load`.
        padding_id: int, the id of padding in prompts, prefixes and results. Default:
            the id that the model masks, see `GenerationConfig`.
        target: name of the target input, see `step_model`.
        output: name of the output that holds the logits, see `step_model`.
        return_alignment: bool, whether to return the cross-attention of each token as
            well. The whole model is applied once more to the results.
        jit_compile: bool, whether TensorFlow compiles the loop with XLA: a step is two
            to three times faster, but each new shape of the inputs is compiled, which
            takes about ten seconds for a model of 6 layers. `"auto"`: if the number of
            parameters times `max_new_tokens` is at least 100 million.

    Returns:
        A dict of tensors, with R hypotheses per batch element (1, unless the strategy
        returns more), the best one first: `"token_ids"` int32 `(B, R, L)`, the
        generated tokens up to the first end token, which is included, then padding;
        `"scores"` float32 `(B, R)`, see the strategy; `"lengths"` int32 `(B, R)`, the
        number of tokens, L for a sequence without an end token. With
        `return_alignment` also `"alignment"` float32 `(B, R, L, S)`: for each token the
        attention weights over the S positions of the context, of the last
        cross-attention of the model, averaged over its heads; zeros after the end.

    Raises:
        ValueError: for missing or unknown inputs, ids outside a vocabulary, or a model
            that cannot be decoded step by step.

    Example:
        >>> from keras_attn import decoding, models
        >>> model = models.transformer_translator(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> result = decoding.generate(
        ...     model,
        ...     {"source": [[5, 6, 7], [8, 9, 0]]},
        ...     max_new_tokens=4,
        ...     start_token_id=1,
        ...     end_token_id=2,
        ... )
        >>> {name: tuple(value.shape) for name, value in sorted(result.items())}
        {'lengths': (2, 1), 'scores': (2, 1), 'token_ids': (2, 1, 4)}
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
    request = Request(model, inputs, config)
    model = request.model
    jit_compile = uses_xla(jit_compile, model, config.max_new_tokens)

    def make_search() -> Callable[..., dict[str, Tensor]]:
        loop = request.loop(transpose_weights=jit_compile)
        return compile_function(loop, model.variables, jit_compile)

    def make_alignment() -> Callable[..., Tensor]:
        settings = request.settings
        alignment = TokenAlignment(
            model, request.target, settings.start_token_id, settings.prompt_padding_id
        )
        return compile_function(alignment, model.variables)

    # Before the search, so that a model without cross-attention is refused first.
    align = request.cached("alignment", make_alignment) if return_alignment else None
    # XLA compiles each shape: a program per shape, so that old ones can be dropped.
    shapes = request.shapes() if jit_compile else ""
    search = request.cached(f"search, {jit_compile=}, {shapes}", make_search)
    results = search(request.inputs, request.prefix, request.draws())
    if align is not None:
        results = {**results, "alignment": align(request.inputs, results)}
    if not request.batch_size:
        return {name: value[:0] for name, value in results.items()}
    return results
