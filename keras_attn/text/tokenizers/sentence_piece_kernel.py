"""The op that runs a SentencePiece model, made wherever it is needed."""

import base64
import hashlib

import tensorflow as tf
import tensorflow_text as tf_text


class SentencePieceKernel:
    """A serialized SentencePiece model, and the ops that run it.

    Args:
        model: bytes, or base64 of them, str.

    Attributes:
        tokens: list of str, the pieces by their ids in the model.

    Raises:
        ValueError: for something else than a SentencePiece model.
    """

    def __init__(self, model):
        if isinstance(model, str):
            model = base64.b64decode(model, validate=True)
        self._model = model
        # The name keeps two models in one SavedModel apart: their kernels are told
        # apart by it, and without one both would answer with the first model.
        self._name = "sentencepiece_" + hashlib.sha256(model).hexdigest()[:16]
        self.tokens = self._read_tokens()

    @property
    def base64(self):
        """The model as str, fit for JSON."""
        return base64.b64encode(self._model).decode()

    def make(self, out_type=tf.int32):
        """A `tf_text.SentencepieceTokenizer`, to ids or (`tf.string`) to pieces.

        Made anew in every graph, and never kept: a kernel made outside of a graph is
        deleted by `tf.random.set_seed`, one inside is rebuilt when needed.
        """
        return tf_text.SentencepieceTokenizer(self._model, out_type, name=self._name)

    def _read_tokens(self):
        try:
            # Eagerly, also for a tokenizer that is made inside a graph.
            with tf.init_scope():
                kernel = self.make()
                tokens = kernel.id_to_string(tf.range(kernel.vocab_size())).numpy()
        except tf.errors.OpError as error:
            raise ValueError(
                "Expected a serialized SentencePiece model. "
                f"Received: model={self._model[:20]!r}..."
            ) from error
        return [token.decode() for token in tokens]
