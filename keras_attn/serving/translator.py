"""A translation model with its tokenizers: text in, text out, in one graph."""

import keras
import tensorflow as tf

from keras_attn import graph
from keras_attn.decoding import GreedySearch, step_model
from keras_attn.decoding.constraints import Constraints
from keras_attn.decoding.loop import decoding_loop
from keras_attn.decoding.validation import vocabulary_sizes

__all__ = ["Translator"]


class Translator(tf.Module):
    """Translates texts with a trained model, and is what `export_translator` saves.

    The weights are the model's own: a translator made before or during training
    always uses the current ones. (`enable_lora` and `quantize` replace variables: make
    it after them.)

    Args:
        model: a translation model, from `{"source", "target"}` ids to logits.
        source_tokenizer: one of `keras_attn.text`'s tokenizers.
        target_tokenizer: likewise. Default: the source's.
        strategy: how tokens are chosen. Default: `keras_attn.decoding.GreedySearch()`.
        max_length: int, how many tokens are generated at most for a text.
        max_source_length: int, how many tokens of a text are read at most, its end
            token included; a longer text is cut.

    Raises:
        RuntimeError: where Keras does not run on TensorFlow.
        ValueError: for a tokenizer whose vocabulary does not fit the model, or a
            model that cannot be decoded step by step.

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
    ):
        super().__init__()
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "A translator is a TensorFlow graph: set KERAS_BACKEND=tensorflow (a "
                "model saved under another backend loads there). Received: "
                f"backend={keras.backend.backend()}"
            )
        graph.check_functional(model)
        names = sorted(tensor.name for tensor in model.inputs)
        if names != ["source", "target"]:
            raise ValueError(
                "`model` must have the inputs 'source' and 'target'. "
                f"Received: a model with the inputs {names}"
            )
        if not isinstance(max_source_length, int) or max_source_length < 2:
            raise ValueError(
                "`max_source_length` must be an int of at least 2, a token and the end "
                f"token. Received: {max_source_length=}"
            )
        target_tokenizer = target_tokenizer or source_tokenizer
        _check_vocabularies(model, source_tokenizer, target_tokenizer)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        # The variables themselves: what a SavedModel holds of the Keras model.
        self.model_variables = [variable.value for variable in model.variables]
        # A function's closure keeps the Keras models out of the SavedModel.
        step = step_model(model, max_length)
        loop = decoding_loop(
            step,
            strategy or GreedySearch(),
            Constraints((target_tokenizer.end_token_id,)),
            target_tokenizer.start_token_id,
            max_length,
        )
        fixed, frontier = _fixed_part(model, step.target)
        hidden_states = _hidden_states(model, step.target, frontier)
        room = graph.least_attribute(fixed, "sequence_length")
        max_source_length = min(max_source_length, room or max_source_length)

        def read(text):
            ids = source_tokenizer.tokenize(text)[:, : max_source_length - 1]
            end = tf.fill([ids.nrows(), 1], source_tokenizer.end_token_id)
            return tf.concat([ids, end], axis=1).to_tensor()

        def translate(text):
            found = loop({"source": read(text)})
            best = target_tokenizer.detokenize(found["token_ids"][:, 0])
            score = found["scores"][:, 0]
            # There is nothing to translate in a blank text.
            blank = tf.equal(tf.strings.length(tf.strings.strip(text)), 0)
            return {
                "text": tf.where(blank, "", best),
                "score": tf.where(blank, 0.0, score),
            }

        def translate_ids(source):
            return loop({"source": source})

        def encode(source):
            return {
                "hidden_states": hidden_states({"source": source}, training=False),
                "padding_mask": tf.not_equal(source, 0),
            }

        text = tf.TensorSpec([None], tf.string, name="text")
        source = tf.TensorSpec([None, None], tf.int32, name="source")
        for function, spec in (
            (translate, text),
            (translate_ids, source),
            (encode, source),
        ):
            setattr(
                self,
                function.__name__,
                tf.function(function, input_signature=[spec], autograph=False),
            )

    def __call__(self, texts):
        """Translations of a list of `str`, as a list of `str`."""
        if isinstance(texts, str):
            raise ValueError(f"`texts` must be a list of str. Received: {texts=}")
        texts = tf.constant(list(texts), dtype=tf.string, shape=[len(texts)])
        return [text.decode() for text in self.translate(texts)["text"].numpy()]


def _check_vocabularies(model, source_tokenizer, target_tokenizer):
    sizes = vocabulary_sizes(model)
    for name, tokenizer, size in (
        ("source", source_tokenizer, sizes.get("source")),
        ("target", target_tokenizer, sizes.get("target")),
        ("target", target_tokenizer, model.outputs[0].shape[-1]),
    ):
        if size is not None and tokenizer.vocabulary_size > size:
            raise ValueError(
                f"The {name} tokenizer's vocabulary must fit the model's, of {size} "
                f"ids. Received: vocabulary_size={tokenizer.vocabulary_size}"
            )


def _fixed_part(model, target):
    """The calls that do not depend on the target, and what they hand over."""
    calls = graph.read(model).calls
    tensors = [tensor for tensor in model.inputs if tensor.name == target]
    moving = graph.dependents(calls, tensors)
    fixed = [c for c in calls if not any(id(t) in moving for t in c.outputs)]
    return fixed, graph.frontier(calls, moving)


def _hidden_states(model, target, frontier):
    """The encoder: from the source ids to the states the decoder attends to."""
    states = [t for t in frontier if keras.backend.is_float_dtype(t.dtype)]
    inputs = {tensor.name: tensor for tensor in model.inputs if tensor.name != target}
    return keras.Model(inputs, states[0])
