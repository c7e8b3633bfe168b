"""A language model with its tokenizer: a prompt in, its continuation out."""

import tensorflow as tf

from keras_attn._graph import functional
from keras_attn.decoding.step.model_info import find_target, length_limit
from keras_attn.serving.search import ServedSearch, check_int
from keras_attn.serving.text_to_text import (
    TextToText,
    check_model,
    check_vocabulary,
    graph_function,
)

__all__ = ["TextGenerator"]


class TextGenerator(TextToText):
    """Continues texts with a trained model; what `export_language_model` saves.

    The weights are the model's own: a generator made before or during training always
    uses the current ones. (`enable_lora` and `quantize` replace variables: make it
    after them.)

    A prompt is read as the start token and the text's tokens, and continued until the
    end token. An empty one is the start token alone. What all prompts of a batch have
    at least, rounded down to 1, 16, 64, 256, ... tokens, goes through the model at
    once; every further token of a prompt costs as much time as a generated one. So
    send long prompts and short ones apart.

    Args:
        model: a language model, from ids `(B, T)`, its only input, to logits.
        tokenizer: one of `keras_attn.text`'s tokenizers.
        strategy: how tokens are chosen, one of `keras_attn.decoding`'s. Default:
            `GreedySearch()`. `Sampling` without a seed draws anew for each request.
        max_length: int, how many tokens are generated at most for a prompt.
        max_prompt_length: int, how many tokens of a prompt are read at most, its
            start token included; of a longer one the last are. Where the model has
            learned positions, there are to be enough for both: fewer tokens are read.
        target: name of the model's input, which it need not be told.
        jit_compile: bool, whether the search is compiled with XLA: two to three times
            faster a token, but for each power of two of prompts in a batch the first
            request takes some seconds. `"auto"` does so where that pays, see
            `keras_attn.decoding.generate`.

    Attributes:
        generate: `tf.function` from `text` string `(B,)` to a dict of `text` string
            `(B,)` and `score` float32 `(B,)`.
        n_best, generate_ids: likewise, see `export_language_model`.

    Raises:
        RuntimeError: where Keras does not run on TensorFlow.
        ValueError: for a tokenizer whose ids do not fit the model, a model
            with more inputs, or one that cannot be decoded step by step.

    Example:
        >>> generate = TextGenerator(model, tokenizer, Sampling(temperature=0.8))
        >>> generate(["def __init__("])
        ['self, name):']
    """

    def __init__(
        self,
        model,
        tokenizer,
        strategy=None,
        max_length=128,
        max_prompt_length=256,
        *,
        target=None,
        jit_compile="auto",
    ):
        check_model(model)
        if len(model.inputs) != 1 or len(model.inputs[0].shape) != 2:
            shapes = {tensor.name: tensor.shape for tensor in model.inputs}
            raise ValueError(
                "`model` must have one input, of token ids (B, T). "
                f"Received: a model with the inputs {shapes}"
            )
        target = find_target(model, target)
        check_int("max_length", max_length, 1, "")
        check_int(
            "max_prompt_length", max_prompt_length, 2, ", the start token and a token"
        )
        check_vocabulary(model, tokenizer, "text", target.name, True)
        room = length_limit(functional.read(model).calls)
        if room is not None:
            # The last generated token is not read.
            max_prompt_length = min(max_prompt_length, room - max_length + 1)
        if max_prompt_length < 2:
            raise ValueError(
                f"`max_length` must leave room for a prompt in the {room} positions "
                f"that the model has learned. Received: max_length={max_length}"
            )
        search = ServedSearch(
            model,
            target,
            target,
            tokenizer,
            tokenizer.padding_id,
            strategy,
            max_length,
            max_prompt_length,
            jit_compile,
        )

        def cut(prompts):
            """Ragged prompts of `max_prompt_length` at most: what comes first is kept,
            and of the rest the last."""
            last = prompts[:, 1:][:, 1 - max_prompt_length :]
            return tf.concat([prompts[:, :1], last], axis=1)

        def continued(prompts):
            shape = [None, max_prompt_length]
            return search(prompts.to_tensor(tokenizer.padding_id, shape=shape))

        def answer(text):
            prompts = cut(tokenizer.tokenize(text, add_start=True))
            found = continued(prompts)
            # A space may stand between a prompt and what follows: written as one.
            read = tokenizer.detokenize(prompts)[:, None]
            hypotheses = found["token_ids"].shape[1]
            # Ragged: padding between the two may have the id of the end.
            prompts = tf.gather(
                prompts, tf.repeat(tf.range(tf.shape(text)[0]), hypotheses)
            )
            tokens = tf.reshape(found["token_ids"], [-1, max_length])
            texts = tokenizer.detokenize(tf.concat([prompts, tokens], axis=1))
            texts = tf.reshape(texts, [-1, hypotheses])
            start = tf.minimum(tf.strings.length(read), tf.strings.length(texts))
            size = tf.strings.length(texts) - start
            return tf.strings.substr(texts, start, size), found["scores"]

        def generate_ids(prompt):
            keep = tf.not_equal(prompt, tokenizer.padding_id)
            if tokenizer.start_token_id == tokenizer.padding_id:
                keep |= tf.equal(tf.range(tf.shape(prompt)[1]), 0)
            prompts = tf.ragged.boolean_mask(prompt, keep)
            empty = tf.cast(tf.equal(prompts.row_lengths(), 0), tf.int64)
            starts = tf.fill([tf.reduce_sum(empty)], tokenizer.start_token_id)
            starts = tf.RaggedTensor.from_row_lengths(starts, empty)
            return continued(cut(tf.concat([starts, prompts], axis=1)))

        super().__init__(model, answer)
        self.tokenizer = tokenizer
        self.generate = self.best
        self.generate_ids = graph_function(
            generate_ids, tf.TensorSpec([None, None], tf.int32, name="prompt")
        )

    def signatures(self):
        return {**super().signatures(), "generate_ids": self.generate_ids}
