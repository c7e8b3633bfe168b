"""What a `tokenizer.json` describes, run in Python: byte-level BPE and others."""

import numpy as np
import tensorflow as tf

from keras_attn.text.tokenizers.tokenizer import Tokenizer


class JsonTokenizer(Tokenizer):
    """A published tokenizer that only the `tokenizers` package can run.

    The byte-level BPE of GPT-2, RoBERTa, BART, Llama 3 and Qwen is one. It works
    eagerly, inside `tf.function` and in a `tf.data` pipeline, where it is called back
    in Python; so no SavedModel can hold it, and to save one with it is refused.

    Gives the ids of `transformers`, except that text that spells a special token, such
    as `<|endoftext|>`, is cut as any other text is.

    Args:
        description: str, what the `tokenizer.json` holds.
        special_ids: Dict of the special ids, see `Tokenizer.special_ids`.

    Raises:
        ImportError: If `tokenizers` is not installed.
        ValueError: If it cannot read the description.

    Reference:
        Radford et al., 2019, Language Models are Unsupervised Multitask Learners,
        section 2.2
    """

    def __init__(self, description, special_ids):
        self._description = description
        self._backend = _backend(description)
        ids = self._backend.get_vocab(with_added_tokens=True)
        tokens = [""] * (1 + max(ids.values(), default=-1))
        for token, token_id in ids.items():
            tokens[token_id] = token
        super().__init__(tokens, special_ids)
        # A `tf.function` of known inputs is traced when its module is saved.
        self._on_export = tf.function(
            self.check_export, input_signature=[], autograph=False
        )

    def check_export(self):
        raise ValueError(
            "A tokenizer that runs in Python cannot be exported; those of BERT "
            "(WordPiece), T5, Marian and Llama with `tokenizer.model` (SentencePiece) "
            f"and those trained with keras_attn can. Received: {type(self).__name__}"
        )

    def get_config(self):
        return {"description": self._description, "special_ids": self.special_ids}

    def _encode(self, texts):
        ids, lengths = tf.numpy_function(
            self._encode_batch, [texts], [tf.int32, tf.int64], stateful=False
        )
        ids = tf.ensure_shape(ids, [None])
        lengths = tf.ensure_shape(lengths, texts.shape)
        return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)

    def _encode_batch(self, texts):
        texts = [text.decode() for text in texts]
        rows = self._backend.encode_batch(texts, add_special_tokens=False)
        ids = [token_id for row in rows for token_id in row.ids]
        return np.array(ids, np.int32), np.array([len(row) for row in rows], np.int64)

    def _decode(self, ids):
        texts = tf.numpy_function(
            self._decode_batch, [ids.values, ids.row_splits], tf.string, stateful=False
        )
        return tf.ensure_shape(texts, ids.shape[:1])

    def _decode_batch(self, ids, splits):
        rows = [row.tolist() for row in np.split(ids, splits[1:-1])][: len(splits) - 1]
        texts = self._backend.decode_batch(rows, skip_special_tokens=True)
        return np.array([text.encode() for text in texts], object)


def _backend(description):
    try:
        from tokenizers import Tokenizer as Backend
    except ImportError as error:
        raise ImportError(
            "A tokenizer of `tokenizer.json` needs tokenizers: pip install tokenizers."
        ) from error
    try:
        backend = Backend.from_str(description)
    except Exception as error:  # the package raises no narrower one
        raise ValueError(
            "Expected what a `tokenizer.json` holds. "
            f"Received: description={description[:60]!r}..."
        ) from error
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True  # text that spells one is only text
    return backend
