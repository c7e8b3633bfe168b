"""Tokenizer described by a `tokenizer.json`, run in Python by `tokenizers`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_attn._types import Tensor
from keras_attn.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers


class JsonTokenizer(Tokenizer):
    """Tokenizer of a published model that only the `tokenizers` package can run.

    An example is the byte-level BPE of GPT-2, RoBERTa, BART, Llama 3 and Qwen. The
    tokenizer works eagerly, inside `tf.function` and in a `tf.data` pipeline, all of
    which call Python. For this reason it cannot be part of a SavedModel: exporting it
    raises an error.

    The ids are those of `transformers`, except that the string of a special token in a
    text, such as `<|endoftext|>`, is tokenized as ordinary text.

    Args:
        description: `str`, the content of the `tokenizer.json`.
        special_ids: Dict of the special ids, see `Tokenizer.special_ids`.

    Raises:
        ImportError: If `tokenizers` is not installed.
        ValueError: If `tokenizers` cannot read the description.

    Reference:
        Radford et al., 2019, Language Models are Unsupervised Multitask Learners,
        section 2.2

    Example:
        >>> import tokenizers
        >>> from keras_attn.text import JsonTokenizer
        >>> model = tokenizers.models.BPE(
        ...     vocab={"<end>": 0, "c": 1, "a": 2, "t": 3, "at": 4, "cat": 5},
        ...     merges=[("a", "t"), ("c", "at")],
        ... )
        >>> description = tokenizers.Tokenizer(model).to_str()
        >>> tokenizer = JsonTokenizer(description, {"end_token_id": 0})
        >>> tokenizer.pieces("catat", add_end=True)
        ['cat', 'at', '<end>']
    """

    def __init__(self, description: str, special_ids: Mapping[str, int | None]) -> None:
        self._description = description
        self._backend = _create_backend(description)
        ids = self._backend.get_vocab(with_added_tokens=True)
        tokens = [""] * (1 + max(ids.values(), default=-1))
        for token, token_id in ids.items():
            tokens[token_id] = token
        super().__init__(tokens, special_ids)
        # `tf.saved_model.save` traces a `tf.function` with an input signature, which
        # raises the error.
        self._on_export = tf.function(
            self.check_export, input_signature=[], autograph=False
        )

    def check_export(self) -> None:
        """Raise a ValueError, since a SavedModel cannot call Python."""
        raise ValueError(
            "Expected a tokenizer of TensorFlow ops. One that runs in Python cannot be "
            "exported; those of BERT (WordPiece), T5, Marian and Llama with "
            "`tokenizer.model` (SentencePiece) and those trained with keras_attn can. "
            f"Received: {type(self).__name__}"
        )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        return {"description": self._description, "special_ids": self.special_ids}

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        ids, lengths = tf.numpy_function(
            self._encode_batch, [texts], [tf.int32, tf.int64], stateful=False
        )
        ids = tf.ensure_shape(ids, [None])
        lengths = tf.ensure_shape(lengths, texts.shape)
        return tf.RaggedTensor.from_row_lengths(  # pyright: ignore[reportAttributeAccessIssue]
            ids, lengths, validate=False
        )

    def _encode_batch(self, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts, concatenated, and the length of each."""
        strings = [text.decode() for text in texts]
        encodings = self._backend.encode_batch(strings, add_special_tokens=False)
        ids = [token_id for encoding in encodings for token_id in encoding.ids]
        lengths = [len(encoding) for encoding in encodings]
        return np.array(ids, np.int32), np.array(lengths, np.int64)

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        texts = tf.numpy_function(
            self._decode_batch, [ids.values, ids.row_splits], tf.string, stateful=False
        )
        return tf.ensure_shape(texts, ids.shape[:1])

    def _decode_batch(self, ids: np.ndarray, splits: np.ndarray) -> np.ndarray:
        """Return the texts of concatenated ids; `splits` are their row splits."""
        sequences = [part.tolist() for part in np.split(ids, splits[1:-1])]
        sequences = sequences[: len(splits) - 1]
        texts = self._backend.decode_batch(sequences, skip_special_tokens=True)
        return np.array([text.encode() for text in texts], object)


def _create_backend(description: str) -> "tokenizers.Tokenizer":
    try:
        from tokenizers import Tokenizer as Backend
    except ImportError as error:
        raise ImportError(
            "A tokenizer of `tokenizer.json` requires tokenizers: pip install "
            "tokenizers."
        ) from error
    try:
        backend = Backend.from_str(description)
    except Exception as error:  # the package raises no narrower one
        raise ValueError(
            "Expected the content of a `tokenizer.json`. "
            f"Received: description={description[:60]!r}..."
        ) from error
    backend.no_truncation()
    backend.no_padding()
    # The string of a special token in a text is ordinary text.
    backend.encode_special_tokens = True
    return backend
