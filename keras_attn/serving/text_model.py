"""Text in, vectors or classes out: a model with its tokenizer, in one graph."""

import tensorflow as tf

from keras_attn._graph import functional
from keras_attn.decoding.step.model_info import length_limit
from keras_attn.serving import shape_buckets
from keras_attn.serving.search import check_int
from keras_attn.serving.text_to_text import (
    check_model,
    check_vocabulary,
    graph_function,
)

__all__ = ["TextModel"]


class TextModel(tf.Module):
    """A model of token ids as a function of texts; what `export_text_model` saves.

    The weights are the model's own: always the current ones. (`enable_lora` and
    `quantize` replace variables: make it after them.)

    Args:
        model: from token ids `(B, T)`, its only input, to one tensor a text `(B, ...)`.
        tokenizer: one of `keras_attn.text`'s tokenizers.
        max_length: int, how many tokens of a text are read at most, start and end
            tokens included; a longer text is cut. No more than the model has learned
            positions, if it has. To embed as sentence-transformers does, the
            `max_seq_length` of the folder's `sentence_bert_config.json`.
        labels: list of str, the names of the classes whose logits the model gives; or
            None, for a model that gives something else.

    Attributes:
        answer: `tf.function` from `text` string `(B,)` to a dict, see
            `export_text_model`.

    Raises:
        RuntimeError: where Keras does not run on TensorFlow.
        ValueError: for a tokenizer whose ids do not fit the model, a model
            with other inputs or more outputs, labels that do not fit the output.

    Example:
        >>> embed = TextModel(model, tokenizer)
        >>> embed(["a first text", "a second"])["output"].shape
        TensorShape([2, 384])
    """

    def __init__(self, model, tokenizer, max_length=256, labels=None):
        super().__init__()
        check_model(model)
        ids = _only_input(model)
        check_int("max_length", max_length, 2, ", the start and the end token")
        check_vocabulary(model, tokenizer, "text", ids.name, False)
        if labels is not None:
            labels = _checked_labels(model, labels)
        room = length_limit(functional.read(model).calls)
        for limit in (room, ids.shape[1]):
            max_length = max_length if limit is None else min(max_length, limit)
        # The variables themselves, as in `TextToText`; tables are found by themselves.
        self.model_variables = [variable.value for variable in model.variables]
        self.tokenizer = tokenizer

        def read(text):
            tokens = tokenizer.tokenize(text, True, True, max_length)
            return tokens.to_tensor(tokenizer.padding_id, shape=[None, ids.shape[1]])

        def answer(text):
            rows = tf.shape(text)[0]
            # A row where there is none: no product is made of nothing.
            tokens = shape_buckets.padded(read(text), tf.maximum(rows, 1))
            tokens = tf.ensure_shape(tokens, ids.shape)
            output = model(tf.cast(tokens, ids.dtype), training=False)[:rows]
            if labels is None:
                return {"output": output}
            best = tf.argmax(output, axis=-1)
            return {
                "output": output,
                "probabilities": tf.nn.softmax(tf.cast(output, tf.float32)),
                "label": tf.gather(tf.constant(labels), best),
            }

        self.answer = graph_function(answer, tf.TensorSpec([None], tf.string, "text"))

    def signatures(self):
        """The functions to save, by the names that they are served under."""
        return {"serving_default": self.answer}

    def __call__(self, texts):
        """A dict of tensors, for a list of `str`."""
        if isinstance(texts, str):
            raise ValueError(f"`texts` must be a list of str. Received: {texts=}")
        return self.answer(tf.constant(list(texts), tf.string, shape=[len(texts)]))


def _only_input(model):
    shapes = {tensor.name: tensor.shape for tensor in model.inputs}
    if len(shapes) != 1 or len(model.inputs[0].shape) != 2 or len(model.outputs) != 1:
        raise ValueError(
            "`model` must have one input, of token ids (B, T), and one output. "
            f"Received: inputs {shapes}, {len(model.outputs)} outputs"
        )
    return model.inputs[0]


def _checked_labels(model, labels):
    labels, shape = list(labels), model.outputs[0].shape
    if not all(isinstance(label, str) for label in labels) or shape[1:] != (
        len(labels),
    ):
        raise ValueError(
            f"`labels` must be a str for each class of the output {tuple(shape)}. "
            f"Received: labels={labels}"
        )
    return labels
