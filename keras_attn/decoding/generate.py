"""Generation: tokens from a training model, by any strategy."""

from keras_attn.decoding.alignment import TokenAlignment
from keras_attn.decoding.compile import compiled, uses_xla
from keras_attn.decoding.request import Request

__all__ = ["generate"]


def generate(
    model,
    inputs,
    start_token_id=None,
    end_token_id=None,
    max_length=128,
    strategy=None,
    target=None,
    jit_compile="auto",
    *,
    prefix=None,
    min_length=0,
    banned_token_ids=(),
    output=None,
    return_alignment=False,
    padding_id=None,
):
    """Generates token sequences with a training model, step by step with a cache.

    One compiled loop, which ends when every row has ended. The step model is derived
    from `model` on the first call and kept; weights are always the current ones.

    Args:
        model: a Functional model as `step_model` takes it.
        inputs: dict of the model's inputs, int `(B, S)` ids and the like. Where the
            target is among them, `(B, P)` with P >= 1, it is the prompt, and
            `start_token_id` is not needed. Shorter prompts are padded at the end.
            Those that run beside the target, such as segment ids, hold P + L - 1
            positions, or P and go on with their values at a row's last prompt token.
        start_token_id: int, the token that stands before the first generated one.
        end_token_id: int, the token that ends a row; or several of them; or None,
            and all rows get `max_length` tokens.
        max_length: int L, how many tokens are generated at most.
        strategy: how tokens are chosen: `GreedySearch()` (default), `BeamSearch()`,
            `Sampling()`, or a sampler object of `keras_nlp.samplers`.
        target: name of the input that grows, see `step_model`.
        jit_compile: bool, whether TensorFlow compiles the loop with XLA: two to three
            times faster a step, but each new shape of the inputs is compiled anew, for
            some seconds. `"auto"` does so for a model where that pays: parameters times
            `max_length` of 100 million and more.
        prefix: int `(F,)` or `(B, F)`, tokens that every row begins with; shorter
            ones are padded at the end. They are among the generated ones.
        min_length: int, how many tokens a row has at least, its end token among them.
        banned_token_ids: ints, tokens that are never generated.
        output: name of the output that holds the logits, see `step_model`.
        return_alignment: bool, whether to tell what each token was made from. The
            whole model is run once more for it, over what was found.
        padding_id: int, the id that prompts and prefixes are padded with, and results.
            The first token of a prompt counts whatever its id. Default: what the model
            masks; where it masks nothing, as published language models, 0, but for
            prompts that tell their length: ragged ids, lists of several lengths, and
            one prompt alone have no padding, and a last 0 is a token as any other.

    Returns:
        A dict of tensors, R hypotheses a row (one, unless the strategy gives more),
        the best first: `"token_ids"` int32 `(B, R, L)`, the generated tokens up to
        and with the first end token, then padding; `"scores"` float32 `(B, R)`, as
        the strategy says; `"lengths"` int32 `(B, R)`, their number. A row that never
        ends is cut: its length is L. With `return_alignment` also `"alignment"`
        float32 `(B, R, L, S)`: for each token the weights with which the last
        cross-attention of the model, on the mean of its heads, saw the S positions it
        attends to; zeros after the end. (`keras_attn.inspection.attention_maps` shows
        all layers.)

    Raises:
        ValueError: for missing or unknown inputs, ids outside a vocabulary, a model
            that cannot be stepped.

    Example:
        >>> found = generate(model, {"source": ids}, start_token_id=2, end_token_id=3,
        ...                  strategy=BeamSearch(num_beams=4))
        >>> found["token_ids"].shape
        (4, 1, 128)
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
    model = request.model
    jit_compile = uses_xla(jit_compile, model, request.search.max_length)

    def search():
        loop = request.loop(transpose_kernels=jit_compile)
        return compiled(loop, model.variables, jit_compile)

    def alignment():
        search = request.search
        align = TokenAlignment(
            model, request.target, search.start_token_id, search.prompt_padding_id
        )
        return compiled(align, model.variables)

    # Before the search: a model that has none is refused at once.
    align = request.keep("alignment", alignment) if return_alignment else None
    run = request.keep(f"search, {jit_compile=}", search)
    found = run(request.inputs, request.prefix, request.draws())
    if align is not None:
        found = {**found, "alignment": align(request.inputs, found)}
    if not request.rows:
        return {name: value[:0] for name, value in found.items()}
    return found
