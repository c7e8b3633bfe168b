"""The folder of a published model, as far as its tokenizer goes."""

import functools
import json
import pathlib


class PublishedFolder:
    """What the files of a folder say of the tokenizer.

    Args:
        path: of the folder.

    Attributes:
        path: `pathlib.Path`.
        family: str or None, the `model_type` of `config.json`.
        tokenizer_class: str or None, without "Fast" at its end.
        settings: dict, `tokenizer_config.json`.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: for a file that is no JSON object.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if not self.path.is_dir():
            raise FileNotFoundError(
                f"Expected a folder with a published model. Received: path={path!s}"
            )
        self._config = self.json("config.json")
        self.family = self._config.get("model_type")
        self.settings = self.json("tokenizer_config.json")
        name = self.settings.get("tokenizer_class")
        self.tokenizer_class = name and name.removesuffix("Fast")

    def has(self, *files):
        return all((self.path / file).is_file() for file in files)

    def json(self, file):
        """The dict in a file; an empty one where there is no such file."""
        path = self.path / file
        if not path.is_file():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Expected JSON. Received: path={path!s}") from error
        if not isinstance(content, dict):
            raise ValueError(f"Expected a JSON object. Received: path={path!s}")
        return content

    @functools.cached_property
    def description(self):
        """The dict in `tokenizer.json`."""
        return self.json("tokenizer.json")

    @functools.cached_property
    def added_tokens(self):
        """Dict from the id of each token that stands beside the vocabulary to a pair:
        the token, and whether it is a special one."""
        found = {
            token_id: (token, True)
            for token, token_id in self.json("added_tokens.json").items()
        }
        entries = [(e.get("id"), e) for e in self.description.get("added_tokens", ())]
        entries += self.settings.get("added_tokens_decoder", {}).items()
        for token_id, entry in entries:
            found[int(token_id)] = entry["content"], entry.get("special", False)
        return found

    def special_ids(self, vocabulary, defaults, side):
        """The special ids of a tokenizer, as `Tokenizer.special_ids` has them.

        Args:
            vocabulary: list of str, all tokens by id.
            defaults: dict from `"pad_token"`, `"cls_token"` and the like to the token
                where the folder does not say.
            side: `"source"`, `"target"` or None: a text that a decoder is to write
                begins with what `config.json` says, others as the tokenizer says.

        Raises:
            ValueError: if no token ends a text, or none stands for unknown ones where
                `defaults` say so.
        """
        id_of = {token: token_id for token_id, token in enumerate(vocabulary)}

        def first(*names):
            """The id that is given first: by a token, or by a number."""
            for name in names:
                token_id = self._config_id(name)
                if not name.endswith("_id"):
                    token = self._special_token(name) or defaults.get(name)
                    token_id = id_of.get(token)
                if token_id is not None and 0 <= token_id < len(vocabulary):
                    return token_id
            return None

        end = first("sep_token", "eos_token", "eos_token_id")
        if end is None:
            raise ValueError(
                "Expected the folder to say which token ends a text, as `eos_token` "
                "of `tokenizer_config.json` or `eos_token_id` of `config.json`. "
                f"Received: path={self.path!s}"
            )
        unknown = first("unk_token")
        if unknown is None and "unk_token" in defaults:
            raise ValueError(
                f"Expected a vocabulary with {defaults['unk_token']!r}. "
                f"Received: {len(vocabulary)} tokens in {self.path!s}"
            )
        begins = ("cls_token", "bos_token", "bos_token_id", "decoder_start_token_id")
        if side != "source":
            begins = ("decoder_start_token_id", *begins)
        padding, start = first("pad_token", "pad_token_id"), first(*begins)
        return {
            "padding_id": end if padding is None else padding,
            "unknown_id": unknown,
            "start_token_id": end if start is None else start,
            "end_token_id": end,
            "source_start_id": _first_added(self.description.get("post_processor")),
        }

    def _special_token(self, name):
        """A token by what it is for, or None."""
        token = self.settings.get(name)
        if token is None:
            token = self.json("special_tokens_map.json").get(name)
        return token.get("content") if isinstance(token, dict) else token

    def _config_id(self, name):
        """An id that the model's config gives, or None."""
        token_id = self._config.get(name)
        if token_id is None:
            token_id = self.json("generation_config.json").get(name)
        return token_id[0] if isinstance(token_id, list) else token_id


def _first_added(processor):
    """The id that a post-processor of `tokenizer.json` puts before a text, or None."""
    kind = processor and processor.get("type")
    if kind == "Sequence":
        added = map(_first_added, processor["processors"])
        return next((token_id for token_id in added if token_id is not None), None)
    if kind in ("RobertaProcessing", "BertProcessing"):
        return processor["cls"][1]
    if kind == "TemplateProcessing":
        special = processor["single"][0].get("SpecialToken")
        return special and processor["special_tokens"][special["id"]]["ids"][0]
    return None
