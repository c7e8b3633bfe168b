"""A generation request as an object: `GenerationConfig`."""

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_attn.decoding.strategies.base import Strategy
from keras_attn.decoding.strategies.beam_search import BeamSearch
from keras_attn.decoding.strategies.greedy_search import GreedySearch
from keras_attn.decoding.strategies.sampling import Sampling
from keras_attn.layers._internal.arguments import is_int, positive_int

__all__ = ["GenerationConfig", "as_config"]

_FILE_NAME = "generation_config.json"
_STRATEGIES = {cls.__name__: cls for cls in (BeamSearch, GreedySearch, Sampling)}
# Every file of `transformers` has a name with one of these endings.
_PUBLISHED_ENDINGS = ("_token_id", "_version", "_new_tokens", "_length", "_ids")
# Names of `transformers` -> fields. The first name that a file has is used.
_PUBLISHED_NAMES = {
    "start_token_id": ("decoder_start_token_id",),
    "end_token_id": ("eos_token_id",),
    "padding_id": ("pad_token_id",),
    "max_new_tokens": ("max_new_tokens",),
    "min_new_tokens": ("min_new_tokens",),
    "banned_token_ids": ("suppress_tokens",),
}


@dataclasses.dataclass(frozen=True)
class GenerationConfig:
    """The options of a generation request, for `generate` and `stream`.

    It can be passed as `config=`, and keywords of `generate` have precedence over it.
    A value, compared by its fields.

    Args:
        max_new_tokens: int L, the largest number of tokens to generate.
        min_new_tokens: int, no end token is generated among this number of first
            tokens.
        start_token_id: int, the first token of the target if there is no prompt.
        end_token_id: int or ints, the tokens that end a sequence. None: all sequences
            get `max_new_tokens` tokens.
        padding_id: int, the id of padding in prompts, prefixes and results. The first
            token of a prompt is never padding. Default: the padding id of the model's
            implicit mask. A model without one (such as a published language model) uses
            0, but only for padded batches: a single prompt, ragged ids and lists of
            different lengths have no padding, so that a 0 at their end is a token.
        strategy: a `GreedySearch` (default), `BeamSearch` or `Sampling`, or a sampler
            object of `keras_hub.samplers`.
        prefix: ints `(F,)` or `(B, F)`, the tokens that each generated sequence begins
            with; shorter ones are padded at the end.
        banned_token_ids: ints, tokens that are never generated. Default: those of a
            published model, see `checkpoints.load`.
        target: name of the target input, see `step_model`.
        output: name of the output that holds the logits, see `step_model`.

    Raises:
        ValueError: for a number outside its range, token ids that are not ints, and a
            strategy that is neither one of `keras_attn.decoding` nor a usable sampler.

    Example:
        >>> from keras_attn import decoding
        >>> config = decoding.GenerationConfig(max_new_tokens=20, end_token_id=3)
        >>> config = config.update(strategy=decoding.BeamSearch(num_beams=2))
        >>> config.max_new_tokens, config.strategy.num_beams
        (20, 2)
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     config.save(folder)
        ...     loaded = decoding.GenerationConfig.load(folder)
        >>> loaded == config
        True
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    start_token_id: int | None = None
    end_token_id: Any = None
    padding_id: int | None = None
    strategy: Any = None
    prefix: Any = None
    banned_token_ids: Any = None
    target: str | None = None
    output: str | None = None

    def __post_init__(self) -> None:
        positive_int("max_new_tokens", self.max_new_tokens)
        is_valid = is_int(self.min_new_tokens)
        if not is_valid or not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ValueError(
                "`min_new_tokens` must be an int from 0 to `max_new_tokens`. "
                f"Received: min_new_tokens={self.min_new_tokens!r}, "
                f"max_new_tokens={self.max_new_tokens}"
            )
        # Plain Python values: comparable, hashable and serializable.
        for name in ("end_token_id", "prefix", "banned_token_ids"):
            object.__setattr__(self, name, _plain(name, getattr(self, name)))
        self.get_strategy()  # raises an error for any other object

    def update(self, **changes: Any) -> "GenerationConfig":
        """Return a config with the given fields replaced; None leaves a field as is."""
        changes = {n: value for n, value in changes.items() if value is not None}
        return dataclasses.replace(self, **changes) if changes else self

    def get_strategy(self) -> Strategy:
        """Return the strategy, `GreedySearch()` by default.

        Raises:
            ValueError: if it is neither a strategy nor a usable sampler.
        """
        if self.strategy is None:
            return GreedySearch()
        if isinstance(self.strategy, Strategy):
            return self.strategy
        from keras_attn.decoding.strategies.keras_hub import strategy_of_sampler

        return strategy_of_sampler(self.strategy)

    def save(self, path: str | pathlib.Path) -> None:
        """Write the config as JSON.

        The file is written atomically: an existing one is replaced, or unchanged after
        an error or a kill.

        Args:
            path: a file whose name ends in `.json`, or a folder, in which
                `generation_config.json` is written. A missing folder is created.

        Raises:
            OSError: if the file cannot be written.
            ValueError: for a strategy that is a sampler object or a class of the user.
        """
        values = dataclasses.asdict(self)
        strategy = self.strategy
        if strategy is not None and type(strategy) not in _STRATEGIES.values():
            raise ValueError(
                "Only a strategy of `keras_attn.decoding` can be saved, one of "
                f"{sorted(_STRATEGIES)}. Received: strategy={strategy!r}"
            )
        if strategy is not None:
            name = type(strategy).__name__
            values["strategy"] = {"class_name": name, **dataclasses.asdict(strategy)}
        text = json.dumps({"keras_attn": values}, indent=2) + "\n"
        file = _config_file(path)
        if file.name == _FILE_NAME:
            with contextlib.suppress(OSError):  # Writing the file raises it.
                file.parent.mkdir(exist_ok=True)
        _write_atomically(file, text)

    @classmethod
    def load(cls, path: str | pathlib.Path) -> "GenerationConfig":
        """Read a config that `save` has written, or that of a published model.

        Of the `generation_config.json` of a published model, the token ids and the
        numbers of new tokens are read, and of `bad_words_ids` the words of one token;
        its search settings (`do_sample`, `num_beams`,
        ...) are not: pass `strategy=`.

        Args:
            path: the file, or the folder with `generation_config.json`.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: for a file that is not a generation config.
        """
        file = _config_file(path)
        if not file.is_file():
            raise FileNotFoundError(
                f"There must be a generation config at the path. Received: {path=}"
            )
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"The file must hold JSON. Received: {path=}") from error
        if not isinstance(content, Mapping):
            raise ValueError(f"The file must hold a JSON object. Received: {path=}")
        if "keras_attn" not in content:
            return cls(**_published_fields(content, path))
        try:
            values = dict(content["keras_attn"])
            strategy = values.get("strategy")
            if strategy is not None:
                options = dict(strategy)
                strategy_class = _STRATEGIES[options.pop("class_name")]
                values["strategy"] = strategy_class(**options)
            return cls(**values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                "The file must hold the fields of a `GenerationConfig`, and be written "
                f"by this version of keras_attn or an earlier one. Received: {path=}, "
                f"which gives {type(error).__name__}: {error}"
            ) from error


def _config_file(path: str | pathlib.Path) -> pathlib.Path:
    """Return the file of a config: `path` itself, or the one in this folder."""
    path = pathlib.Path(path)
    is_file = path.is_file() or (path.suffix == ".json" and not path.is_dir())
    return path if is_file else path / _FILE_NAME


def as_config(config: Any) -> GenerationConfig:
    """Return the config of a request, the default one for None.

    Raises:
        ValueError: for any other object.
    """
    if config is None:
        return GenerationConfig()
    if not isinstance(config, GenerationConfig):
        raise ValueError(
            "`config` must be a `GenerationConfig`, such as "
            "`GenerationConfig(max_new_tokens=20)`, which takes the same keywords as "
            f"`generate`. Received: config={config!r}"
        )
    return config


def _write_atomically(path: pathlib.Path, text: str) -> None:
    """Write a temporary file that then replaces the file at `path`."""
    path = path.resolve()  # A link is kept, and the file that it leads to replaced.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise type(error)(
            f"The file cannot be written ({error.strerror}). Received: path={path}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def _published_fields(
    content: Mapping[str, Any], path: str | pathlib.Path
) -> dict[str, Any]:
    """Return the fields that the file of a published model sets."""
    if content and not any(name.endswith(_PUBLISHED_ENDINGS) for name in content):
        raise ValueError(
            "The file must hold a generation config, of keras_attn or of a published "
            f"model. Received: {path=} with the keys {sorted(content)[:5]}"
        )
    fields = {}
    for field, names in _PUBLISHED_NAMES.items():
        values = [content[n] for n in names if content.get(n) is not None]
        if values:
            fields[field] = values[0]
    words = content.get("bad_words_ids") or ()
    single = [word[0] for word in words if len(word) == 1]
    if single:
        fields["banned_token_ids"] = [*fields.get("banned_token_ids", ()), *single]
    return fields


def _plain(name: str, value: Any) -> Any:
    """Return ints, or nested tuples of ints, of any nested or array value."""
    if value is None:
        return None
    if is_int(value) and not np.ndim(value):
        return int(value)
    if hasattr(value, "numpy"):  # tensors of TensorFlow and PyTorch
        value = value.numpy()
    try:
        array = np.asarray(value)
        is_valid = not array.size or array.dtype.kind in "iu"
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(
            f"`{name}` must be ints, in sequences of the same length. "
            f"Received: {name}={value!r}"
        )
    return _nested_tuples(array.tolist())


def _nested_tuples(value: Any) -> Any:
    return tuple(map(_nested_tuples, value)) if isinstance(value, list) else value
