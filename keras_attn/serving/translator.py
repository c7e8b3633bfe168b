"""Translation models with their tokenizers: text in, text out, in one graph."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from keras_attn._graph import functional
from keras_attn._types import Tensor
from keras_attn.decoding import Strategy
from keras_attn.decoding.step.model_info import find_target, max_positions
from keras_attn.serving import shape_buckets
from keras_attn.serving.search import ServedSearch, check_int
from keras_attn.serving.text_to_text import (
    TextToText,
    check_model,
    check_vocabulary,
    graph_function,
)
from keras_attn.text import Tokenizer
from keras_attn.text.tokenizers.tokenizer import check_tokenizer

__all__ = ["Translator"]


class Translator(TextToText):
    """Translates texts with a translation model; `export_translator` saves it.

    The variables are shared with the model, so the current weights are always used.
    `enable_lora` and `quantize` replace variables: call them before.

    Args:
        model: A translation model, from source ids `(B, S)` and target ids `(B, T)` to
            logits `(B, T, V)`.
        source_tokenizer: A tokenizer of `keras_attn.text`.
        target_tokenizer: A tokenizer of `keras_attn.text`. Default: the source
            tokenizer.
        strategy: The decoding strategy, a `keras_attn.decoding.Strategy`. Default:
            `GreedySearch()`. `Sampling` without a seed draws new random numbers for
            each request.
        max_new_tokens: int, the maximum number of generated tokens per text.
        max_source_length: int, the maximum number of tokens of a source text, including
            the start and end tokens. Longer texts are truncated. A model with learned
            positions limits it to their number.
        target: The name of the model's target input. Default: `"target"`. The other
            input is the source.
        jit_compile: bool or `"auto"`, whether XLA compiles the search. Generation is
            then two to three times faster per token, but the first request of each
            batch size and source length (both rounded up to powers of two) takes about
            ten seconds for a model of 6 layers. `"auto"` compiles large models, see
            `keras_attn.decoding.generate`.

    Attributes:
        translate: `tf.function` from `text`, string `(B,)`, to a dict of `text`, string
            `(B,)`, and `score`, float32 `(B,)`.
        n_best, translate_ids, encode: `tf.function`s, see `export_translator`. `encode`
            is None if the decoder does not attend to states of the source tokens.

    Raises:
        RuntimeError: If the Keras backend is not TensorFlow.
        TypeError: If a tokenizer is not one of `keras_attn.text`.
        ValueError: If the ids of a tokenizer do not fit the model, the model has other
            inputs, or it cannot be decoded step by step.

    Example:
        >>> from keras_attn.models import transformer_translator
        >>> from keras_attn.serving import Translator
        >>> from keras_attn.text import CharacterTokenizer
        >>> texts = ["나는 학교에 간다.", "I go to school."]
        >>> tokenizer = CharacterTokenizer.train(texts, 40)
        >>> model = transformer_translator(
        ...     tokenizer.vocabulary_size,
        ...     num_layers=1,
        ...     hidden_dim=8,
        ...     intermediate_dim=16,
        ...     num_heads=2,
        ... )
        >>> translate = Translator(
        ...     model, tokenizer, max_new_tokens=4, jit_compile=False
        ... )
        >>> translations = translate(["나는 간다.", "학교"])
        >>> len(translations)
        2
    """

    def __init__(
        self,
        model: keras.Model,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        strategy: Strategy | None = None,
        max_new_tokens: int = 128,
        *,
        max_source_length: int = 256,
        target: str | None = None,
        jit_compile: bool | str = "auto",
    ) -> None:
        check_model(model)
        check_tokenizer("source_tokenizer", source_tokenizer)
        if target_tokenizer is None:
            target_tokenizer = source_tokenizer
        check_tokenizer("target_tokenizer", target_tokenizer)
        source_input, target_input = _source_and_target(model, target)
        check_int("max_new_tokens", max_new_tokens, 1)
        min_length = 1 + _num_special_tokens(source_tokenizer)
        reason = ", for one token in addition to the start and end tokens"
        check_int("max_source_length", max_source_length, min_length, reason)
        _check_vocabularies(
            model, source_tokenizer, target_tokenizer, source_input, target_input
        )
        encoder_calls, encoder_outputs = _split_graph(model, target_input)
        limits = (max_positions(encoder_calls), source_input.shape[1])
        limits = [limit for limit in limits if limit is not None]
        max_source_length = min([max_source_length, *limits])
        search = ServedSearch(
            model,
            source_input,
            target_input,
            target_tokenizer,
            strategy,
            max_new_tokens=max_new_tokens,
            max_source_length=max_source_length,
            padding_id=source_tokenizer.padding_id,
            jit_compile=jit_compile,
        )

        def search_texts(text: Tensor) -> tuple[Tensor, Tensor]:
            results = search(_tokenize(source_tokenizer, text, max_source_length))
            texts = target_tokenizer.detokenize(results["token_ids"])
            return _blank_for_blank(text, texts, results["scores"])

        def translate_ids(source: Tensor) -> dict[str, Tensor]:
            return search(_check_length(source, limits))

        super().__init__(model, search_texts)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.translate: Callable[[Tensor], dict[str, Tensor]] = self.best
        ids = tf.TensorSpec([None, None], tf.int32, name="source")
        self.translate_ids: Callable[[Tensor], dict[str, Tensor]] = graph_function(
            translate_ids, ids
        )
        hidden_states = _hidden_states(
            source_input, encoder_outputs, source_tokenizer.padding_id
        )
        self.encode: Callable[[Tensor], dict[str, Tensor]] | None = None
        if hidden_states is not None:

            def encode(source: Tensor) -> dict[str, Tensor]:
                return hidden_states(_check_length(source, limits))

            self.encode = graph_function(encode, ids)

    def signatures(self) -> dict[str, Callable[[Tensor], dict[str, Tensor]]]:
        signatures = {**super().signatures(), "translate_ids": self.translate_ids}
        if self.encode is not None:
            signatures["encode"] = self.encode
        return signatures


def _source_and_target(
    model: keras.Model, target: str | None
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Return the source and the target input of a translation model."""
    shapes = {tensor.name: tensor.shape for tensor in model.inputs}
    if len(shapes) == 2 and all(len(shape) == 2 for shape in shapes.values()):
        target_input = find_target(model, target)
        source_input = next(x for x in model.inputs if x is not target_input)
        return source_input, target_input
    raise ValueError(
        "`model` must have two inputs, of source ids (B, S) and target ids (B, T). "
        f"Received: a model with the inputs {shapes}"
    )


def _num_special_tokens(source_tokenizer: Tokenizer) -> int:
    """Return the number of tokens that are added to each source text."""
    return 1 if source_tokenizer.source_start_id is None else 2


def _check_vocabularies(
    model: keras.Model,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    source_input: keras.KerasTensor,
    target_input: keras.KerasTensor,
) -> None:
    check_vocabulary(
        model, source_tokenizer, "source", source_input.name, is_generated=False
    )
    check_vocabulary(
        model, target_tokenizer, "target", target_input.name, is_generated=True
    )


def _split_graph(
    model: keras.Model, target_input: keras.KerasTensor
) -> tuple[list[functional.Call], list[keras.KerasTensor]]:
    """Return the calls that do not depend on the target, and their outputs.

    Returns:
        A tuple of a list of `functional.Call` and the list of the
        `keras.KerasTensor`s that calls that depend on the target have as inputs.
    """
    calls = functional.read_graph(model).calls
    dependent = functional.descendants(calls, [target_input])
    independent = [
        call for call in calls if not any(id(x) in dependent for x in call.outputs)
    ]
    return independent, functional.boundary_tensors(calls, dependent)


def _tokenize(tokenizer: Tokenizer, text: Tensor, max_length: int) -> Tensor:
    """Return the padded ids of source texts, with the tokens the encoder expects."""
    tokens = tokenizer.tokenize(text)[:, : max_length - _num_special_tokens(tokenizer)]
    parts = [tokens, tf.fill([tokens.nrows(), 1], tokenizer.end_token_id)]
    if tokenizer.source_start_id is not None:
        parts.insert(0, tf.fill([tokens.nrows(), 1], tokenizer.source_start_id))
    return tf.concat(parts, axis=1).to_tensor(tokenizer.padding_id)


def _blank_for_blank(
    text: Tensor, texts: Tensor, scores: Tensor
) -> tuple[Tensor, Tensor]:
    """Replace the translations of blank texts by one blank hypothesis.

    Args:
        text: string `(B,)`, the source texts.
        texts: string `(B, R)`, the translations.
        scores: float32 `(B, R)`, their scores.

    Returns:
        A tuple of new `texts` and `scores`. For a blank text, the first score is 0 and
        the others are minus infinity.
    """
    is_blank = tf.equal(tf.strings.length(tf.strings.strip(text)), 0)[:, None]
    blank_scores = tf.where(tf.range(texts.shape[1]) > 0, -np.inf, 0.0)
    return tf.where(is_blank, "", texts), tf.where(is_blank, blank_scores, scores)


def _check_length(source: Tensor, limits: Sequence[int]) -> Tensor:
    """Return source ids, and assert in the graph that they have enough positions."""
    for limit in limits:
        tf.debugging.assert_less_equal(
            tf.shape(source)[1], limit, "`source` has too many tokens per text"
        )
    return source


def _hidden_states(
    source_input: keras.KerasTensor,
    encoder_outputs: Sequence[keras.KerasTensor],
    padding_id: int,
) -> Callable[[Tensor], dict[str, Tensor]] | None:
    """Return a function from source ids to the states that the decoder attends to.

    Args:
        source_input: The model's source input.
        encoder_outputs: The outputs of the calls that do not depend on the target.
        padding_id: The id that pads source ids.

    Returns:
        A function, or None if no encoder output has a state for each source token.
    """
    states = [
        tensor
        for tensor in encoder_outputs
        if keras.backend.is_float_dtype(tensor.dtype) and len(tensor.shape) == 3
    ]
    if not states:
        return None
    encoder = keras.Model(source_input, states[0])
    fixed_length = source_input.shape[1]

    def hidden_states(source: Tensor) -> dict[str, Tensor]:
        batch_size, length = tf.unstack(tf.shape(source))
        length = tf.maximum(length, 1) if fixed_length is None else fixed_length
        padded_size = tf.maximum(batch_size, 1)
        source = shape_buckets.pad_batch(source, padded_size, length, padding_id)
        source = tf.ensure_shape(source, source_input.shape)
        states = encoder(tf.cast(source, source_input.dtype), training=False)
        mask = tf.not_equal(source, padding_id)
        return {"hidden_states": states[:batch_size], "padding_mask": mask[:batch_size]}

    return hidden_states
