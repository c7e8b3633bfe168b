"""Description of a family of published models."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import keras

from keras_attn.checkpoints.folder import Config, Folder
from keras_attn.checkpoints.sentence_embedding import Pooling
from keras_attn.checkpoints.weight_map import Entry

__all__ = [
    "BuildOptions",
    "Family",
    "ModelInputs",
    "ids_input",
    "untied_head_overrides",
]

ModelInputs: TypeAlias = keras.KerasTensor | dict[str, keras.KerasTensor]


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """Arguments of `load` that are not part of a config.

    Attributes:
        dropout: dropout rate of all layers; None for the rates of the config.
        use_token_type_ids: whether token type ids are an input.
        pooling: pooling of the task `"sentence_embedding"`, otherwise None.
    """

    dropout: float | None = None
    use_token_type_ids: bool = False
    pooling: Pooling | None = None


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of published models: how to build a model and how to name its weights.

    Attributes:
        name: `model_type` in `config.json`.
        tasks: dict from each task to its name among the `architectures` in
            `config.json`. The first task is the model without a head.
        build: function `(config, task, options)` that returns the inputs and the output
            of a model.
        weight_map: function `(model, config, task)` that returns the `Entry` of each
            weight; see `weight_map.map_weights`.
        base_prefix: prefix of the tensor names in models that have a head.
        head_prefixes: prefixes of tensors that a model without a head can ignore.
        ignored_suffixes: suffixes of tensors that are never needed, such as the buffers
            in older files.
        new_layers: names of layers that are initialized if the file does not contain
            them, or contains them with other shapes.
        aliases: pairs of a name's suffix and a suffix that some files use instead.
        config_overrides: function of the `Folder` that returns the config entries to
            replace, derived from the tensors.
    """

    name: str
    tasks: dict[str, str]
    build: Callable[[Config, str, BuildOptions], tuple[ModelInputs, keras.KerasTensor]]
    weight_map: Callable[[keras.Model, Config, str], list[Entry]]
    base_prefix: str = ""
    head_prefixes: tuple[str, ...] = ()
    ignored_suffixes: tuple[str, ...] = ()
    new_layers: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    config_overrides: Callable[[Folder], dict[str, Any]] = lambda folder: {}

    def task_of(self, architectures: Sequence[str]) -> str:
        """Return the task of a model with these `architectures`.

        If none of them is known, the task without a head is returned.
        """
        for task, architecture in self.tasks.items():
            if architecture in architectures:
                return task
        return next(iter(self.tasks))

    def candidate_names(self, name: str) -> Iterator[str]:
        """Yield the names that a tensor can have in a file, the usual one first.

        Files of a model without a head omit `base_prefix`.
        """
        short = name.removeprefix(self.base_prefix)
        for candidate in (name, short, self.base_prefix + short):
            yield candidate
            for suffix, alias in self.aliases:
                if candidate.endswith(suffix):
                    yield candidate.removesuffix(suffix) + alias


def ids_input(name: str) -> keras.KerasTensor:
    """Return a model input of int32 ids `(B, T)`."""
    ids = keras.Input((None,), dtype="int32", name=name)
    return ids  # pyright: ignore[reportReturnType]


def untied_head_overrides(
    head: str, *embeddings: str
) -> Callable[[Folder], dict[str, Any]]:
    """Return a `Family.config_overrides` that detects an untied output projection.

    As in `transformers`, the projection is untied if the file contains both tensors and
    they differ, regardless of `tie_word_embeddings` in the config.

    Args:
        head: name of the output projection's tensor.
        embeddings: possible names of the token embedding's tensor.
    """

    def overrides(folder: Folder) -> dict[str, Any]:
        present = [name for name in embeddings if name in folder.shapes]
        if (
            head not in folder.shapes
            or not present
            or folder.are_equal(head, present[0])
        ):
            return {}
        return {"tie_word_embeddings": False}

    return overrides
