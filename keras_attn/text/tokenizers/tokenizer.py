"""Base class of all tokenizers."""

import hashlib
import json
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from keras_attn._types import Tensor
from keras_attn.text.tokenizers import token_ids, tokenizer_file

# The text of an unknown token after detokenization.
UNKNOWN_TEXT = "⁇"
_SPECIAL_IDS = (
    "padding_id",
    "unknown_id",
    "start_token_id",
    "end_token_id",
    "source_start_id",
)


def check_tokenizer(name: str, tokenizer: object) -> None:
    """Raise a TypeError if an argument is not a `Tokenizer`.

    Args:
        name: The name of the argument, for the message.
        tokenizer: Its value.
    """
    if not isinstance(tokenizer, Tokenizer):
        received = type(tokenizer)
        raise TypeError(
            f"Expected {name} to be a tokenizer of `keras_attn.text`, such as "
            "`load_tokenizer`, `load_published_tokenizer` (for the folder of a "
            "published model) or the method `train` of a tokenizer class returns. "
            f"Received: {name} of type {received.__module__}.{received.__qualname__}"
        )


class Tokenizer(tf.Module):
    """Base class of tokenizers: strings to int32 token ids and back.

    All methods work eagerly, inside `tf.function`, inside a `tf.data` pipeline and
    inside a SavedModel. To export a tokenizer, make it an attribute of the `tf.Module`
    that is saved. `keras.utils.set_random_seed` and `tf.random.set_seed` do not affect
    it.

    Tokenizers that are trained with this library have the same special ids:
    `padding_id` 0, `unknown_id` 1, `start_token_id` 2, `end_token_id` 3. The tokenizer
    of a published model has the ids of that model; several of them may be equal, and
    `unknown_id` may be None. `source_start_id` is the id at the start of each text that
    is the input of an encoder in an encoder-decoder model, as in BART; it is None if
    there is no such id, as in all tokenizers trained with this library. No text is ever
    tokenized to the padding, start or end id, even if it contains the string of such a
    token.

    A subclass implements `_encode` (valid UTF-8, string `(N,)`, to ragged int32
    `(N, None)`), `_decode` (the reverse, for ids without special ones), `get_config`
    and, if it can be trained, `train`.

    Args:
        tokens: Iterable of `str`, all tokens by id.
        special_ids: Dict of special ids that differ from the defaults, as returned by
            the attribute `special_ids`.

    Attributes:
        padding_id: `int`.
        unknown_id: `int` or None.
        start_token_id: `int`.
        end_token_id: `int`.
        source_start_id: `int` or None.

    Example:
        >>> from keras_attn.text import Tokenizer, WordTokenizer
        >>> tokenizer = WordTokenizer.train(["a cat", "a dog"])
        >>> isinstance(tokenizer, Tokenizer)
        True
        >>> tokenizer.tokens()
        ['[PAD]', '[UNK]', '[START]', '[END]', 'a', 'cat', 'dog']
        >>> ids = tokenizer.tokenize(["a dog", "dog"], add_end=True)
        >>> ids.to_list()
        [[4, 6, 3], [6, 3]]
        >>> tokenizer.detokenize(ids).numpy().tolist()
        [b'a dog', b'dog']
    """

    padding_id: int = 0
    unknown_id: int | None = 1
    start_token_id: int = 2
    end_token_id: int = 3
    source_start_id: int | None = None

    def __init__(
        self,
        tokens: Iterable[str],
        special_ids: Mapping[str, int | None] | None = None,
    ) -> None:
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
        # In a namespace, because `tf.Module` would wrap and track a list of tokens and
        # write these functions into every SavedModel, which does not need them.
        self._untracked = types.SimpleNamespace(
            tokens=list(tokens), encode=encode, decode=decode
        )

    @classmethod
    def train(
        cls, sentences: Iterable[str], vocabulary_size: int, **options: Any
    ) -> Self:
        """Train a tokenizer on an iterable of `str`; see the subclasses."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return a tokenizer with the constructor's arguments in `config`."""
        return cls(**config)

    @property
    def special_ids(self) -> dict[str, int | None]:
        """Dict of the special ids, by the names of the attributes."""
        return {name: getattr(self, name) for name in _SPECIAL_IDS}

    def check_export(self) -> None:
        """Raise a ValueError if the tokenizer cannot be part of a SavedModel."""

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, including the special ones."""
        return len(self._untracked.tokens)

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest, equal for tokenizers of the same class and config."""
        config = [type(self).__name__, self.get_config()]
        text = json.dumps(config, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def tokens(self) -> list[str]:
        """Return all tokens as a list of `str`, by id."""
        return list(self._untracked.tokens)

    def id_to_token(self, token_id: int) -> str:
        """Return the token of an id.

        Raises:
            ValueError: If the id is outside the vocabulary.
        """
        token_id = int(token_id)
        if not 0 <= token_id < self.vocabulary_size:
            raise ValueError(
                f"Expected an id from 0 to {self.vocabulary_size - 1}. "
                f"Received: token_id={token_id}"
            )
        return self._untracked.tokens[token_id]

    def pieces(
        self, text: str | Tensor, add_start: bool = False, add_end: bool = False
    ) -> list[str]:
        """Return the tokens of a single text, for example as labels of a plot.

        Args:
            text: `str`, or a string tensor of rank 0.
            add_start: Whether to begin with the start token.
            add_end: Whether to finish with the end token.

        Returns:
            A list of `str`.

        Raises:
            ValueError: If `text` is a list of texts.
        """
        ids = self.tokenize(text, add_start=add_start, add_end=add_end)
        if isinstance(ids, tf.RaggedTensor):
            raise ValueError(f"Expected a single text. Received: text={text!r}")
        return [self._untracked.tokens[i] for i in ids.numpy()]

    @tf.autograph.experimental.do_not_convert
    def tokenize(
        self,
        texts: str | bytes | Sequence[str | bytes] | Tensor,
        add_start: bool = False,
        add_end: bool = False,
        max_length: int | None = None,
    ) -> Tensor | tf.RaggedTensor:
        """Convert texts to token ids.

        Args:
            texts: A list of `str`, or a string tensor of rank 1 or 0. Bytes that are
                not valid UTF-8 are read as U+FFFD.
            add_start: Whether to prepend `start_token_id` to each text.
            add_end: Whether to append `end_token_id` to each text.
            max_length: Maximum number of tokens per text, including start and end.
                Longer texts are truncated before the end token. None for no limit.

        Returns:
            A `tf.RaggedTensor`, int32 `(N, None)`; for a single text an int32 tensor
            `(T,)`.

        Raises:
            ValueError: If `texts` is not text or has a rank above 1, or if `max_length`
                is less than the number of added tokens.

        Example:
            >>> from keras_attn.text import CharacterTokenizer
            >>> tokenizer = CharacterTokenizer.train(["abc"])
            >>> tokenizer.tokenize(["abc", "b"], add_end=True, max_length=3).to_list()
            [[4, 5, 3], [5, 3]]
            >>> tokenizer.tokenize("b", add_start=True).numpy().tolist()
            [2, 5]
        """
        num_special = int(add_start) + int(add_end)
        if max_length is not None and max_length < num_special:
            raise ValueError(
                f"Expected max_length to be at least {num_special}, for start and end. "
                f"Received: {max_length=}"
            )
        strings = token_ids.to_string_tensor(texts)
        rank = strings.shape.rank
        batch = strings[tf.newaxis] if rank == 0 else strings
        if tf.executing_eagerly():
            ids = self._untracked.encode(batch)
        else:
            ids = self._clean_and_encode(batch)
        if max_length is not None:
            ids = ids[:, : max_length - num_special]
        ids = token_ids.add_special_ids(
            ids,
            start=self.start_token_id if add_start else None,
            end=self.end_token_id if add_end else None,
        )
        return ids.values if rank == 0 else ids

    @tf.autograph.experimental.do_not_convert
    def detokenize(
        self, ids: Sequence[Any] | Tensor | tf.RaggedTensor
    ) -> Tensor | tf.RaggedTensor:
        """Convert token ids to texts.

        Padding and start ids are dropped. Each sequence is truncated at its first end
        id.

        Args:
            ids: Integers `(..., T)`: a `tf.RaggedTensor`, a padded dense tensor, or a
                list of lists.

        Returns:
            A string tensor `(...)`: shape `(N,)` for ids `(N, T)`, a scalar for ids
            `(T,)`. Ragged ids of a higher rank return a `tf.RaggedTensor`.

        Raises:
            ValueError: If `ids` are not integers, or an id is outside the vocabulary.
                Inside a graph, such an id is read as the unknown token instead, or is
                dropped if there is none.

        Example:
            >>> from keras_attn.text import CharacterTokenizer
            >>> tokenizer = CharacterTokenizer.train(["abc"])
            >>> ids = [[2, 4, 5, 3, 6], [6, 0, 0, 0, 0]]
            >>> tokenizer.detokenize(ids).numpy().tolist()
            [b'ab', b'c']
        """
        tensor = token_ids.to_id_tensor(ids)
        if isinstance(tensor, tf.RaggedTensor):
            if tensor.ragged_rank > 1 or tensor.flat_values.shape.rank > 1:
                return tensor.with_values(self.detokenize(tensor.values))
            return self._detokenize_ragged(tensor.with_row_splits_dtype(tf.int64))
        shape = tf.shape(tensor)
        # Not -1 for the first axis: it cannot be inferred if the length is 0.
        sequences = tf.reshape(tensor, [tf.reduce_prod(shape[:-1]), shape[-1]])
        sequences = tf.RaggedTensor.from_tensor(sequences)  # pyright: ignore[reportAttributeAccessIssue]
        texts = tf.reshape(self._detokenize_ragged(sequences), shape[:-1])
        return tf.ensure_shape(texts, tensor.shape[:-1])

    def _detokenize_ragged(self, ids: tf.RaggedTensor) -> Tensor:
        """Convert ragged int64 ids `(N, None)` to texts `(N,)`."""
        ids = token_ids.strip_special_ids(
            ids, self.padding_id, self.start_token_id, self.end_token_id
        )
        size = self.vocabulary_size
        is_outside = (ids.values < 0) | (ids.values >= size)
        if not tf.executing_eagerly():
            if self.unknown_id is None:
                ids = tf.ragged.boolean_mask(ids, ids.with_values(~is_outside))
                return self._decode(tf.cast(ids, tf.int32))
            values = tf.where(
                is_outside, tf.constant(self.unknown_id, tf.int64), ids.values
            )
            return self._decode(ids.with_values(tf.cast(values, tf.int32)))
        outside = tf.boolean_mask(ids.values, is_outside)
        if outside.shape[0]:
            raise ValueError(
                f"Expected token ids from 0 to {size - 1}, since the vocabulary has "
                f"{size} tokens. Received: ids with {int(outside[0])}"
            )
        return self._untracked.decode(tf.cast(ids, tf.int32))

    def _clean_and_encode(self, texts: Tensor) -> tf.RaggedTensor:
        """Convert texts `(N,)` to ragged int32 ids `(N, None)` with int64 splits."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        ids = self._encode(texts).with_row_splits_dtype(tf.int64)
        return tf.cast(ids, tf.int32)

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        raise NotImplementedError

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to a single self-contained JSON file.

        The file is written atomically: an existing file of this name is replaced, or is
        unchanged if the method fails. `load_tokenizer` reads it.

        Args:
            path: `str` or `os.PathLike`, the file.

        Raises:
            FileNotFoundError: If the folder of `path` does not exist.
            IsADirectoryError: If `path` is a folder.
        """
        tokenizer_file.write(path, type(self).__name__, self.get_config())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a tokenizer of this class from a file written by `save`.

        `load_tokenizer` loads a file of any class.

        Args:
            path: `str` or `os.PathLike`, the file.

        Returns:
            A tokenizer of this class.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If it was not written by `save`, or by a different class.
        """
        class_name, config = tokenizer_file.read(path)
        if class_name != cls.__name__:
            raise ValueError(
                f"Expected a file of {cls.__name__}, but it is one of {class_name}; "
                f"`load_tokenizer` loads all classes. Received: path={str(path)!r}"
            )
        return tokenizer_file.rebuild(cls.from_config, config, path)
