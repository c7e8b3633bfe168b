"""A translation model with its tokenizers: text in, text out, in one graph."""

import keras
import numpy as np
import tensorflow as tf

from keras_attn._graph import functional
from keras_attn.decoding.step.model_info import find_target, length_limit
from keras_attn.serving import shape_buckets
from keras_attn.serving.search import ServedSearch, check_int
from keras_attn.serving.text_to_text import (
    TextToText,
    check_model,
    check_vocabulary,
    graph_function,
)

__all__ = ["Translator"]


class Translator(TextToText):
    """Translates texts with a trained model, and is what `export_translator` saves.

    The weights are the model's own: a translator made before or during training
    always uses the current ones. (`enable_lora` and `quantize` replace variables: make
    it after them.)

    Args:
        model: a translation model, from source and target ids to logits.
        source_tokenizer: one of `keras_attn.text`'s tokenizers.
        target_tokenizer: likewise. Default: the source's.
        strategy: how tokens are chosen, one of `keras_attn.decoding`'s. Default:
            `GreedySearch()`. `Sampling` without a seed draws anew for each request.
        max_length: int, how many tokens are generated at most for a text.
        max_source_length: int, how many tokens of a text are read at most, start
            and end token included; a longer text is cut. No more than the model has
            learned positions, if it has.
        target: name of the model's input that grows. Default: `"target"`. The other
            input is the source.
        jit_compile: bool, whether the search is compiled with XLA: two to three times
            faster a token, but for each power of two of texts in a batch, and of
            tokens in the longest of them, the first request takes some seconds.
            `"auto"` does so where that pays, see `keras_attn.decoding.generate`.

    Attributes:
        translate: `tf.function` from `text` string `(B,)` to a dict of `text` string
            `(B,)` and `score` float32 `(B,)`.
        n_best, translate_ids, encode: likewise, see `export_translator`.

    Raises:
        RuntimeError: where Keras does not run on TensorFlow.
        ValueError: for a tokenizer whose ids do not fit the model, a model
            with other inputs, or one that cannot be decoded step by step.

    Example:
        >>> translate = Translator(model, source_tokenizer, target_tokenizer)
        >>> translate(["나는 학교에 간다."])
        ['I go to school.']
    """

    def __init__(
        self,
        model,
        source_tokenizer,
        target_tokenizer=None,
        strategy=None,
        max_length=128,
        max_source_length=256,
        *,
        target=None,
        jit_compile="auto",
    ):
        check_model(model)
        target_tokenizer = target_tokenizer or source_tokenizer
        source, target = _two_inputs(model, target)
        check_int("max_length", max_length, 1, "")
        source_start = source_tokenizer.source_start_id
        num_beside = 1 if source_start is None else 2
        what = ", a token beside the start and end tokens"
        check_int("max_source_length", max_source_length, 1 + num_beside, what)
        check_vocabulary(model, source_tokenizer, "source", source.name, False)
        check_vocabulary(model, target_tokenizer, "target", target.name, True)
        fixed, frontier = _fixed_part(model, target)
        room = length_limit(fixed)
        limits = [length for length in (room, source.shape[1]) if length is not None]
        max_source_length = min([max_source_length, *limits])
        search = ServedSearch(
            model,
            source,
            target,
            target_tokenizer,
            source_tokenizer.padding_id,
            strategy,
            max_length,
            max_source_length,
            jit_compile,
        )

        def read(text):
            ids = source_tokenizer.tokenize(text)[:, : max_source_length - num_beside]
            rows = [ids, tf.fill([ids.nrows(), 1], source_tokenizer.end_token_id)]
            if source_start is not None:
                rows.insert(0, tf.fill([ids.nrows(), 1], source_start))
            return tf.concat(rows, axis=1).to_tensor(source_tokenizer.padding_id)

        def answer(text):
            found = search(read(text))
            texts = target_tokenizer.detokenize(found["token_ids"])
            # There is nothing to translate in a blank text: one blank answer.
            blank = tf.equal(tf.strings.length(tf.strings.strip(text)), 0)[:, None]
            only = tf.where(tf.range(texts.shape[1]) > 0, -np.inf, 0.0)
            return tf.where(blank, "", texts), tf.where(blank, only, found["scores"])

        def checked(ids):
            """Ids that the model has positions for, as an answer must not be wrong."""
            for limit in limits:
                tf.debugging.assert_less_equal(
                    tf.shape(ids)[1], limit, "`source` has too many tokens a row"
                )
            return ids

        def translate_ids(source):
            return search(checked(source))

        super().__init__(model, answer)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.translate = self.best
        ids = tf.TensorSpec([None, None], tf.int32, name="source")
        self.translate_ids = graph_function(translate_ids, ids)
        hidden_states = _hidden_states(source, frontier, source_tokenizer.padding_id)
        self.encode = None
        if hidden_states is not None:

            def encode(source):
                return hidden_states(checked(source))

            self.encode = graph_function(encode, ids)

    def signatures(self):
        signatures = {**super().signatures(), "translate_ids": self.translate_ids}
        if self.encode is not None:
            signatures["encode"] = self.encode
        return signatures


def _two_inputs(model, target):
    """The source and the target, `keras.KerasTensor`s."""
    shapes = {tensor.name: tensor.shape for tensor in model.inputs}
    if len(shapes) == 2 and all(len(shape) == 2 for shape in shapes.values()):
        target = find_target(model, target)
        return next(tensor for tensor in model.inputs if tensor is not target), target
    raise ValueError(
        "`model` must have two inputs, of source ids (B, S) and target ids (B, T). "
        f"Received: a model with the inputs {shapes}"
    )


def _fixed_part(model, target):
    """The calls that do not depend on the target, and what they hand over."""
    calls = functional.read(model).calls
    moving = functional.dependents(calls, [target])
    fixed = [c for c in calls if not any(id(t) in moving for t in c.outputs)]
    return fixed, functional.frontier(calls, moving)


def _hidden_states(source, frontier, padding_id):
    """The encoder: from source ids to the states that the decoder attends to.

    None where there are no such, one for each source token.
    """
    states = [
        tensor
        for tensor in frontier
        if keras.backend.is_float_dtype(tensor.dtype) and len(tensor.shape) == 3
    ]
    if not states:
        return None
    encoder = keras.Model(source, states[0])

    def hidden_states(ids):
        rows, length = tf.unstack(tf.shape(ids))
        length = tf.maximum(length, 1) if source.shape[1] is None else source.shape[1]
        ids = shape_buckets.padded(ids, tf.maximum(rows, 1), length, padding_id)
        ids = tf.ensure_shape(ids, source.shape)
        states = encoder(tf.cast(ids, source.dtype), training=False)
        mask = tf.not_equal(ids, padding_id)
        return {"hidden_states": states[:rows], "padding_mask": mask[:rows]}

    return hidden_states
