"""Encoders and classifiers with a tokenizer: text in, vectors or classes out."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from keras_attn._graph import functional
from keras_attn._types import Tensor
from keras_attn.decoding.step.model_info import max_positions
from keras_attn.serving import shape_buckets
from keras_attn.serving.search import SHORTEST, check_int
from keras_attn.serving.text_to_text import (
    check_model,
    check_vocabulary,
    graph_function,
)
from keras_attn.text import Tokenizer
from keras_attn.text.tokenizers.tokenizer import check_tokenizer

__all__ = ["TextModel"]


class TextModel(tf.Module):
    """A model of token ids as a function of texts; `export_text_model` saves it.

    The variables are shared with the model, so the current weights are always used.
    `enable_lora` and `quantize` replace variables: call them before.

    Args:
        model: A model from token ids `(B, T)`, its only input, to one output
            `(B, ...)`.
        tokenizer: A tokenizer of `keras_attn.text`.
        max_length: int, the maximum number of tokens of a text, including the start and
            end tokens. Longer texts are truncated. A model with learned positions
            limits it to their number. To compute embeddings as sentence-transformers
            does, use the `max_seq_length` in the model's `sentence_bert_config.json`.
        labels: List of str, the names of the classes if the output of the model is
            their logits. None for other models.

    Attributes:
        predict: `tf.function` from `text`, string `(B,)`, to a dict of tensors, see
            `export_text_model`.

    Raises:
        RuntimeError: If the Keras backend is not TensorFlow.
        TypeError: If `tokenizer` is not one of `keras_attn.text`.
        ValueError: If the ids of the tokenizer do not fit the model, the model has
            other inputs or several outputs, or `labels` do not fit the output.

    Example:
        >>> from keras_attn.models import text_classifier
        >>> from keras_attn.serving import TextModel
        >>> from keras_attn.text import CharacterTokenizer
        >>> texts = ["a good film", "a bad film"]
        >>> tokenizer = CharacterTokenizer.train(texts, 20)
        >>> model = text_classifier(
        ...     tokenizer.vocabulary_size,
        ...     2,
        ...     num_layers=1,
        ...     hidden_dim=8,
        ...     intermediate_dim=16,
        ...     num_heads=2,
        ... )
        >>> classify = TextModel(model, tokenizer, labels=["negative", "positive"])
        >>> outputs = classify(texts)
        >>> tuple(outputs["probabilities"].shape)
        (2, 2)
        >>> sorted(outputs)
        ['label', 'output', 'probabilities']
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        max_length: int = 256,
        labels: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        check_model(model)
        check_tokenizer("tokenizer", tokenizer)
        source = _only_input(model)
        check_int("max_length", max_length, 2, ", the start and the end token")
        check_vocabulary(model, tokenizer, "text", source.name, is_generated=False)
        if labels is not None:
            labels = _check_labels(model, labels)
        num_positions = max_positions(functional.read_graph(model).calls)
        for limit in (num_positions, source.shape[1]):
            max_length = max_length if limit is None else min(max_length, limit)
        # The variables alone, as in `TextToText`. Tables are tracked automatically.
        self.model_variables: list[tf.Variable] = [
            variable.value for variable in model.variables
        ]
        self.tokenizer = tokenizer

        def tokenize(text: Tensor) -> Tensor:
            tokens = tokenizer.tokenize(text, True, True, max_length)
            return tokens.to_tensor(tokenizer.padding_id, shape=[None, source.shape[1]])

        def predict(text: Tensor) -> dict[str, Tensor]:
            tokens = tokenize(text)
            batch_size, length = tf.unstack(tf.shape(tokens))
            # An empty batch is replaced by a text of padding, since some ops do not
            # support empty tensors, and some a few tokens only.
            shortest = tf.where(batch_size > 0, 1, min(max_length, SHORTEST))
            tokens = shape_buckets.pad_batch(
                tokens,
                tf.maximum(batch_size, 1),
                tf.maximum(length, shortest),
                tokenizer.padding_id,
            )
            tokens = tf.ensure_shape(tokens, source.shape)
            output = model(tf.cast(tokens, source.dtype), training=False)[:batch_size]
            if labels is None:
                return {"output": output}
            best = tf.argmax(output, axis=-1)
            return {
                "output": output,
                "probabilities": tf.nn.softmax(tf.cast(output, tf.float32)),
                "label": tf.gather(tf.constant(labels), best),
            }

        self.predict: Callable[[Tensor], dict[str, Tensor]] = graph_function(
            predict, tf.TensorSpec([None], tf.string, "text")
        )

    def signatures(self) -> dict[str, Callable[[Tensor], dict[str, Tensor]]]:
        """Return the functions to save, by the names of their signatures."""
        return {"serving_default": self.predict}

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return a dict of tensors for a list of texts."""
        if isinstance(texts, str):
            raise ValueError(f"`texts` must be a list of str. Received: {texts=}")
        return self.predict(tf.constant(list(texts), tf.string, shape=[len(texts)]))


def _only_input(model: keras.Model) -> keras.KerasTensor:
    shapes = {tensor.name: tensor.shape for tensor in model.inputs}
    if len(shapes) != 1 or len(model.inputs[0].shape) != 2 or len(model.outputs) != 1:
        raise ValueError(
            "`model` must have one input, of token ids (B, T), and one output. "
            f"Received: inputs {shapes}, {len(model.outputs)} outputs"
        )
    return model.inputs[0]


def _check_labels(model: keras.Model, labels: Sequence[str]) -> list[str]:
    """Return the labels as a list, or raise a ValueError if they do not fit."""
    labels, shape = list(labels), model.outputs[0].shape
    if not all(isinstance(label, str) for label in labels) or shape[1:] != (
        len(labels),
    ):
        raise ValueError(
            "`labels` must have one str for each class of the model's output "
            f"{tuple(shape)}. Received: labels={labels}"
        )
    return labels
