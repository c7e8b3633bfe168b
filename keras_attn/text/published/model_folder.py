"""The tokenizer files in the folder of a published model."""

import functools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal


class ModelFolder:
    """The tokenizer files in the folder of a published model.

    Args:
        path: The folder.

    Attributes:
        path: `pathlib.Path`.
        model_type: `str` or None, the `model_type` in `config.json`.
        tokenizer_class: `str` or None, without a final "Fast".
        settings: Dict, the content of `tokenizer_config.json`.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If a file is not a JSON object.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: pathlib.Path = pathlib.Path(path)
        if not self.path.is_dir():
            raise FileNotFoundError(
                f"Expected the folder of a published model. Received: path={path!s}"
            )
        self._config = self.read_json("config.json")
        self.model_type: str | None = self._config.get("model_type")
        self.settings: dict[str, Any] = self.read_json("tokenizer_config.json")
        name = self.settings.get("tokenizer_class")
        self.tokenizer_class: str | None = name and name.removesuffix("Fast")

    def has_files(self, *names: str) -> bool:
        """Return whether the folder contains all files."""
        return all((self.path / name).is_file() for name in names)

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the dict in a JSON file, or an empty dict if the file is missing."""
        path = self.path / name
        if not path.is_file():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"Expected a JSON file. Received: path={path!s}"
            ) from error
        if not isinstance(content, dict):
            raise ValueError(f"Expected a JSON object. Received: path={path!s}")
        return content

    @functools.cached_property
    def tokenizer_json(self) -> dict[str, Any]:
        """Dict in `tokenizer.json`."""
        return self.read_json("tokenizer.json")

    @functools.cached_property
    def added_tokens(self) -> dict[int, tuple[str, bool]]:
        """Dict from the id of each added token to `(token, is_special)`."""
        tokens = {
            token_id: (token, True)
            for token, token_id in self.read_json("added_tokens.json").items()
        }
        added = self.tokenizer_json.get("added_tokens", ())
        entries = [(entry.get("id"), entry) for entry in added]
        entries += self.settings.get("added_tokens_decoder", {}).items()
        for token_id, entry in entries:
            tokens[int(token_id)] = entry["content"], entry.get("special", False)
        return tokens

    def special_ids(
        self,
        vocabulary: Sequence[str],
        defaults: Mapping[str, str],
        side: Literal["source", "target"] | None,
    ) -> dict[str, int | None]:
        """Return the special ids of a tokenizer, as in `Tokenizer.special_ids`.

        Args:
            vocabulary: All tokens by id.
            defaults: Dict from `"pad_token"`, `"cls_token"` and similar names to the
                token that is used if the files do not name one.
            side: `"source"`, `"target"` or None. The start token of a source is that of
                the tokenizer; otherwise it is `decoder_start_token_id` of
                `config.json`, if present.

        Raises:
            ValueError: If there is no end token, or no unknown token although
                `defaults` names one.
        """
        id_of = {token: token_id for token_id, token in enumerate(vocabulary)}

        def first_valid(*names: str) -> int | None:
            """Return the first valid id among tokens and ids with these names."""
            for name in names:
                token_id = self._config_id(name)
                if not name.endswith("_id"):
                    token = self._special_token(name) or defaults.get(name)
                    token_id = None if token is None else id_of.get(token)
                if token_id is not None and 0 <= token_id < len(vocabulary):
                    return token_id
            return None

        end = first_valid("sep_token", "eos_token", "eos_token_id")
        if end is None:
            raise ValueError(
                "Expected a folder that defines the end token, as `eos_token` in "
                "`tokenizer_config.json` or `eos_token_id` in `config.json`. "
                f"Received: path={self.path!s}"
            )
        unknown = first_valid("unk_token")
        if unknown is None and "unk_token" in defaults:
            raise ValueError(
                f"Expected a vocabulary with {defaults['unk_token']!r}. "
                f"Received: {len(vocabulary)} tokens in {self.path!s}"
            )
        starts = ("cls_token", "bos_token", "bos_token_id", "decoder_start_token_id")
        if side != "source":
            starts = ("decoder_start_token_id", *starts)
        padding = first_valid("pad_token", "pad_token_id")
        start = first_valid(*starts)
        post_processor = self.tokenizer_json.get("post_processor")
        return {
            "padding_id": end if padding is None else padding,
            "unknown_id": unknown,
            "start_token_id": end if start is None else start,
            "end_token_id": end,
            "source_start_id": _leading_special_id(post_processor),
        }

    def _special_token(self, name: str) -> str | None:
        """Return the token with a name such as `"eos_token"`, or None."""
        token = self.settings.get(name)
        if token is None:
            token = self.read_json("special_tokens_map.json").get(name)
        return token.get("content") if isinstance(token, dict) else token

    def _config_id(self, name: str) -> int | None:
        """Return an id in the model's config, such as `"eos_token_id"`, or None."""
        token_id = self._config.get(name)
        if token_id is None:
            token_id = self.read_json("generation_config.json").get(name)
        return token_id[0] if isinstance(token_id, list) else token_id


def _leading_special_id(post_processor: dict[str, Any] | None) -> int | None:
    """Return the id that a post-processor of `tokenizer.json` prepends, or None."""
    if not post_processor:
        return None
    kind = post_processor.get("type")
    if kind == "Sequence":
        leading = map(_leading_special_id, post_processor["processors"])
        return next((token_id for token_id in leading if token_id is not None), None)
    if kind in ("RobertaProcessing", "BertProcessing"):
        return post_processor["cls"][1]
    if kind == "TemplateProcessing":
        special = post_processor["single"][0].get("SpecialToken")
        if not special:
            return None
        return post_processor["special_tokens"][special["id"]]["ids"][0]
    return None
