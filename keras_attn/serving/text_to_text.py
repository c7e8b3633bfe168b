"""What translators and text generators share: texts in, texts with scores out."""

import keras
import tensorflow as tf

from keras_attn._graph import functional
from keras_attn.decoding.step.vocabulary import masked_ids, vocabulary_sizes

__all__ = ["TextToText", "check_model", "check_vocabulary", "graph_function"]


class TextToText(tf.Module):
    """Base of the modules that answer texts with texts, to be saved whole.

    Args:
        model: the Keras model whose variables are saved.
        answer: a function from texts, string `(B,)`, to answers string `(B, R)` and
            their scores float32 `(B, R)`, the best first.

    Attributes:
        n_best: `tf.function` from `text` string `(B,)` to a dict of `texts` string
            `(B, R)` and `scores` float32 `(B, R)`.
        best: likewise, to the first of them, `text` and `score` `(B,)`.
    """

    def __init__(self, model, answer):
        super().__init__()
        # The variables themselves: what a SavedModel holds of the Keras model. The
        # functions' closures keep the rest of it out.
        self.model_variables = [variable.value for variable in model.variables]

        def n_best(text):
            texts, scores = answer(text)
            return {"texts": texts, "scores": scores}

        def best(text):
            texts, scores = answer(text)
            return {"text": texts[:, 0], "score": scores[:, 0]}

        text = tf.TensorSpec([None], tf.string, name="text")
        self.n_best = graph_function(n_best, text)
        self.best = graph_function(best, text)

    def signatures(self):
        """The functions to save, by the names that they are served under."""
        return {"serving_default": self.best, "n_best": self.n_best}

    def __call__(self, texts):
        """Answers to a list of `str`, as a list of `str`."""
        if isinstance(texts, str):
            raise ValueError(f"`texts` must be a list of str. Received: {texts=}")
        texts = tf.constant(list(texts), dtype=tf.string, shape=[len(texts)])
        return [text.decode() for text in self.best(texts)["text"].numpy()]


def graph_function(function, spec):
    """`function` as a `tf.function` of one tensor."""
    return tf.function(function, input_signature=[spec], autograph=False)


def check_model(model):
    """Raise where there is no graph to be made of `model`."""
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "What is served is a TensorFlow graph: set KERAS_BACKEND=tensorflow (a "
            "model saved under another backend loads there). Received: "
            f"backend={keras.backend.backend()}"
        )
    functional.check_functional(model)


def check_vocabulary(model, tokenizer, kind, ids, is_generated):
    """Raise where a tokenizer has ids, or a padding, that the model does not have.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        kind: str, the tokenizer's name in the message.
        ids: name of the model's input that its ids go into.
        is_generated: bool, whether the model's output is of its ids as well.
    """
    sizes = [vocabulary_sizes(model).get(ids)]
    if is_generated:
        sizes.append(model.outputs[0].shape[-1])
    for size in sizes:
        if size is not None and tokenizer.vocabulary_size > size:
            raise ValueError(
                f"The {kind} tokenizer's vocabulary must fit the model's, of {size} "
                f"ids. Received: vocabulary_size={tokenizer.vocabulary_size}"
            )
    masked = masked_ids(model).get(ids, tokenizer.padding_id)
    if tokenizer.padding_id != masked:
        raise ValueError(
            f"The {kind} tokenizer must pad with the id that the model masks, "
            f"{masked}. Received: padding_id={tokenizer.padding_id}"
        )
