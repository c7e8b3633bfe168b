"""The interface that all tokenizers share."""

import hashlib
import json
import types

import tensorflow as tf

from keras_attn.text.tokenizers import token_ids, tokenizer_file

# What an unknown token becomes in detokenized text.
UNKNOWN_TEXT = "⁇"
_SPECIAL_IDS = (
    "padding_id",
    "unknown_id",
    "start_token_id",
    "end_token_id",
    "source_start_id",
)


class Tokenizer(tf.Module):
    """Base class: strings to int32 token ids and back.

    Everything runs eagerly, inside `tf.function`, inside a `tf.data` pipeline and
    inside a SavedModel. To export one, make it an attribute of the `tf.Module` that is
    saved. `keras.utils.set_random_seed` and `tf.random.set_seed` do it no harm.

    The special ids are the same in every tokenizer that is trained here: `padding_id`
    0, `unknown_id` 1, `start_token_id` 2, `end_token_id` 3. A published one has its
    own; several may be the same id, and `unknown_id` be None. `source_start_id` is what
    begins each text that an encoder reads for a decoder, as BART's does; None where
    nothing does, as in those trained here. No input text is ever tokenized to the
    padding, start or end id, not even one that spells such a token.

    A subclass gives `_encode` (cleaned string `(N,)` to ragged int32 `(N, None)`),
    `_decode` (the reverse, for ids without special ones), `get_config` and `train`.
    """

    padding_id = 0
    unknown_id = 1
    start_token_id = 2
    end_token_id = 3
    source_start_id = None

    def __init__(self, tokens, special_ids=None):
        super().__init__()
        for name, token_id in (special_ids or {}).items():
            setattr(self, name, token_id)
        encode = tf.function(
            self._clean_and_encode,
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        )
        decode = tf.function(
            self._decode,
            input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)],
            autograph=False,
        )
        # A namespace, since `tf.Module` would wrap and track a list of tokens, and
        # write functions into every SavedModel, where they are of no use.
        self._untracked = types.SimpleNamespace(
            tokens=list(tokens), encode=encode, decode=decode
        )

    @classmethod
    def train(cls, sentences, vocabulary_size, **options):
        """Learns a vocabulary from an iterable of `str`. See the subclasses."""
        raise NotImplementedError

    def get_config(self):
        """The arguments that rebuild this tokenizer; fit for JSON."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    @property
    def special_ids(self):
        """Dict of the special ids, by the names of the attributes."""
        return {name: getattr(self, name) for name in _SPECIAL_IDS}

    def check_export(self):
        """Raise a ValueError where no SavedModel can hold this tokenizer."""

    @property
    def vocabulary_size(self):
        """Number of ids, special ones included."""
        return len(self._untracked.tokens)

    @property
    def fingerprint(self):
        """A hexadecimal digest, equal for tokenizers that do the same."""
        config = [type(self).__name__, self.get_config()]
        text = json.dumps(config, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def tokens(self):
        """All tokens as a list of `str`, by id."""
        return list(self._untracked.tokens)

    def id_to_token(self, token_id):
        """The token of one id, as `str`; ValueError for an unknown id."""
        token_id = int(token_id)
        if not 0 <= token_id < self.vocabulary_size:
            raise ValueError(
                f"Expected an id from 0 to {self.vocabulary_size - 1}. "
                f"Received: token_id={token_id}"
            )
        return self._untracked.tokens[token_id]

    def pieces(self, text, add_start=False, add_end=False):
        """The tokens of one text as a list of `str`: labels for a plot."""
        ids = self.tokenize(text, add_start=add_start, add_end=add_end)
        if isinstance(ids, tf.RaggedTensor):
            raise ValueError(f"Expected one text. Received: text={text!r}")
        return [self._untracked.tokens[i] for i in ids.numpy()]

    @tf.autograph.experimental.do_not_convert
    def tokenize(self, texts, add_start=False, add_end=False, max_length=None):
        """Turns texts into token ids.

        Args:
            texts: A list of `str`, or a string tensor of rank 1 or 0. Bytes that are
                not UTF-8 are read as U+FFFD.
            add_start: Put `start_token_id` before each text.
            add_end: Put `end_token_id` after each text.
            max_length: The most tokens of a text, start and end included: more are cut
                off before its end. None for all.

        Returns:
            A `tf.RaggedTensor`, int32 `(N, None)`; for one text an int32 tensor
            `(T,)`.

        Raises:
            ValueError: If `texts` has another rank or is not text, or `max_length`
                leaves no room beside start and end.
        """
        num_beside = int(add_start) + int(add_end)
        if max_length is not None and max_length < num_beside:
            raise ValueError(
                f"Expected max_length to be at least {num_beside}, for start and end. "
                f"Received: {max_length=}"
            )
        texts = token_ids.to_strings(texts)
        rank = texts.shape.rank
        rows = texts[tf.newaxis] if rank == 0 else texts
        if tf.executing_eagerly():
            ids = self._untracked.encode(rows)
        else:
            ids = self._clean_and_encode(rows)
        if max_length is not None:
            ids = ids[:, : max_length - num_beside]
        ids = token_ids.add_special(
            ids,
            start=self.start_token_id if add_start else None,
            end=self.end_token_id if add_end else None,
        )
        return ids.values if rank == 0 else ids

    @tf.autograph.experimental.do_not_convert
    def detokenize(self, ids):
        """Turns token ids into texts.

        Padding and start ids are dropped; so is the first end id of a row, with
        everything after it.

        Args:
            ids: Whole numbers: a `tf.RaggedTensor`, a padded dense tensor, or a list
                of lists, `(..., T)`.

        Returns:
            A string tensor `(...)`: for `(N, T)` one of `(N,)`, for `(T,)` a scalar.

        Raises:
            ValueError: If `ids` are not whole numbers, or one is outside the
                vocabulary. In a graph such an id becomes the unknown token; where there
                is none, it is dropped.
        """
        ids = token_ids.to_integers(ids)
        if isinstance(ids, tf.RaggedTensor):
            if ids.ragged_rank > 1 or ids.flat_values.shape.rank > 1:
                return ids.with_values(self.detokenize(ids.values))
            return self._detokenize_rows(ids.with_row_splits_dtype(tf.int64))
        shape = tf.shape(ids)
        # Not -1 for the rows: they cannot be inferred when the length is 0.
        rows = tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
        texts = self._detokenize_rows(tf.RaggedTensor.from_tensor(rows))
        texts = tf.reshape(texts, shape[:-1])
        return tf.ensure_shape(texts, ids.shape[:-1])

    def _detokenize_rows(self, ids):
        ids = token_ids.strip_special(
            ids, self.padding_id, self.start_token_id, self.end_token_id
        )
        size = self.vocabulary_size
        outside = (ids.values < 0) | (ids.values >= size)
        if not tf.executing_eagerly():
            if self.unknown_id is None:
                ids = tf.ragged.boolean_mask(ids, ids.with_values(~outside))
                return self._decode(tf.cast(ids, tf.int32))
            known = tf.where(
                outside, tf.constant(self.unknown_id, tf.int64), ids.values
            )
            return self._decode(ids.with_values(tf.cast(known, tf.int32)))
        bad = tf.boolean_mask(ids.values, outside)
        if bad.shape[0]:
            raise ValueError(
                f"Expected token ids from 0 to {size - 1}, since the vocabulary has "
                f"{size} tokens. Received: ids with {int(bad[0])}"
            )
        return self._untracked.decode(tf.cast(ids, tf.int32))

    def _clean_and_encode(self, texts):
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        ids = self._encode(texts).with_row_splits_dtype(tf.int64)
        return tf.cast(ids, tf.int32)

    def _encode(self, texts):
        raise NotImplementedError

    def _decode(self, ids):
        raise NotImplementedError

    def save(self, path):
        """Writes one self-contained file, whole or not at all.

        An existing file of this name is replaced. `Tokenizer.load(path)` reads it.
        """
        tokenizer_file.write(path, type(self).__name__, self.get_config())

    @classmethod
    def load(cls, path):
        """Reads a file written by `save`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it was not written by `save`, or by another class.
        """
        tokenizer = tokenizer_file.load_tokenizer(path)
        if not isinstance(tokenizer, cls):
            raise ValueError(
                f"Expected a file of {cls.__name__}, found one of "
                f"{type(tokenizer).__name__}. Received: path={str(path)!r}"
            )
        return tokenizer
