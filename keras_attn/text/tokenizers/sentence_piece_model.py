"""A serialized SentencePiece model and the ops that run it."""

import base64
import hashlib
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text


class SentencePieceModel:
    """A serialized SentencePiece model and the ops that run it.

    Args:
        serialized: Bytes, or base64 of them, `str`.

    Attributes:
        tokens: List of `str`, the pieces by id.

    Raises:
        ValueError: If the bytes are not a SentencePiece model.
    """

    def __init__(self, serialized: bytes | str) -> None:
        if isinstance(serialized, str):
            serialized = base64.b64decode(serialized, validate=True)
        self._serialized = serialized
        # A SavedModel identifies kernels by this name. Without it, two models in one
        # SavedModel would share the kernel of the first.
        self._name = "sentencepiece_" + hashlib.sha256(serialized).hexdigest()[:16]
        self.tokens: list[str] = self._read_tokens()

    @property
    def base64(self) -> str:
        """The serialized model as base64, for JSON."""
        return base64.b64encode(self._serialized).decode()

    # Any, because the annotations of tensorflow_text contradict the type stubs of
    # TensorFlow.
    def create_tokenizer(self, out_type: Any = tf.int32) -> Any:
        """Return a new `tf_text.SentencepieceTokenizer`.

        It is created in each graph and never stored: `tf.random.set_seed` deletes a
        kernel created outside a graph, while one inside a graph is rebuilt when needed.

        Args:
            out_type: `tf.int32` to tokenize to ids, `tf.string` to pieces.
        """
        return tf_text.SentencepieceTokenizer(
            self._serialized, out_type, name=self._name
        )

    def _read_tokens(self) -> list[str]:
        try:
            # Eager, even if the tokenizer is created inside a graph.
            with tf.init_scope():
                tokenizer = self.create_tokenizer()
                ids = tf.range(tokenizer.vocab_size())
                tokens = tokenizer.id_to_string(ids).numpy()
        except tf.errors.OpError as error:
            raise ValueError(
                "Expected a serialized SentencePiece model. "
                f"Received: model={self._serialized[:20]!r}..."
            ) from error
        return [token.decode() for token in tokens]
