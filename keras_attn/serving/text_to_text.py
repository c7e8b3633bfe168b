"""The base class of translators and text generators."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_attn._graph import functional
from keras_attn._types import Tensor
from keras_attn.decoding.step.model_info import padding_ids, vocabulary_sizes
from keras_attn.text import Tokenizer

__all__ = ["TextToText", "check_model", "check_vocabulary", "graph_function"]


class TextToText(tf.Module):
    """Base class of the modules that map texts to texts and can be saved.

    Args:
        model: The Keras model whose variables are saved.
        search: A function from texts, string `(B,)`, to a tuple of the generated texts,
            string `(B, R)`, and their scores, float32 `(B, R)`, best hypothesis first.

    Attributes:
        n_best: `tf.function` from `text`, string `(B,)`, to a dict of `texts`, string
            `(B, R)`, and `scores`, float32 `(B, R)`.
        best: `tf.function` from `text`, string `(B,)`, to a dict of the best
            hypothesis, `text`, string `(B,)`, and its `score`, float32 `(B,)`.
    """

    def __init__(
        self,
        model: keras.Model,
        search: Callable[[Tensor], tuple[Tensor, Tensor]],
    ) -> None:
        super().__init__()
        # The variables alone: the Keras model itself is only in the closures of the
        # functions, and so is not saved as an object of its own.
        self.model_variables: list[Any] = [
            variable.value for variable in model.variables
        ]

        def n_best(text: Tensor) -> dict[str, Tensor]:
            texts, scores = search(text)
            return {"texts": texts, "scores": scores}

        def best(text: Tensor) -> dict[str, Tensor]:
            texts, scores = search(text)
            return {"text": texts[:, 0], "score": scores[:, 0]}

        text = tf.TensorSpec([None], tf.string, name="text")
        self.n_best: Callable[[Tensor], dict[str, Tensor]] = graph_function(
            n_best, text
        )
        self.best: Callable[[Tensor], dict[str, Tensor]] = graph_function(best, text)

    def signatures(self) -> dict[str, Callable[[Tensor], dict[str, Tensor]]]:
        """Return the functions to save, by the names of their signatures."""
        return {"serving_default": self.best, "n_best": self.n_best}

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Return the best hypothesis for each of a list of texts."""
        if isinstance(texts, str):
            raise ValueError(f"`texts` must be a list of str. Received: {texts=}")
        text = tf.constant(list(texts), dtype=tf.string, shape=[len(texts)])
        return [text.decode() for text in self.best(text)["text"].numpy()]


def graph_function(
    function: Callable[[Tensor], dict[str, Tensor]], spec: tf.TensorSpec
) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return `function` as a `tf.function` of one tensor."""
    return tf.function(function, input_signature=[spec], autograph=False)


def check_model(model: Any) -> None:
    """Raise an error if `model` cannot become part of a TensorFlow graph."""
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "The TensorFlow backend is required, since a TensorFlow graph is served: "
            "set KERAS_BACKEND=tensorflow. It also loads models that were saved with a "
            f"different backend. Received: backend={keras.backend.backend()}"
        )
    functional.check_functional(model)


def check_vocabulary(
    model: keras.Model,
    tokenizer: Tokenizer,
    kind: str,
    input_name: str,
    is_generated: bool,
) -> None:
    """Raise a ValueError if a tokenizer's ids or padding do not fit a model.

    Args:
        model: The model.
        tokenizer: The tokenizer.
        kind: The name of the tokenizer in the message.
        input_name: The name of the model's input for the tokenizer's ids.
        is_generated: Whether the model's output is over the tokenizer's ids as well.
    """
    sizes = [vocabulary_sizes(model).get(input_name)]
    if is_generated:
        sizes.append(model.outputs[0].shape[-1])
    for size in sizes:
        if size is not None and tokenizer.vocabulary_size > size:
            raise ValueError(
                f"The {kind} tokenizer's vocabulary must fit the model's {size} ids. "
                f"Received: vocabulary_size={tokenizer.vocabulary_size}"
            )
    masked = padding_ids(model).get(input_name, tokenizer.padding_id)
    if tokenizer.padding_id != masked:
        raise ValueError(
            f"The {kind} tokenizer must pad with the id that the model masks, "
            f"{masked}. Received: padding_id={tokenizer.padding_id}"
        )
