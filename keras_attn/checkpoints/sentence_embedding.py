"""Pooling configuration of sentence embedding models."""

import pathlib
from typing import Any, TypedDict

from keras_attn.checkpoints.folder import check_inside, read_json

__all__ = ["Pooling", "pooling_files", "read_pooling"]

MODULES = "modules.json"
# From the values of `TokenPooling` to those of `pooling_mode`.
_MODES = {"first": "cls", "mean": "mean", "max": "max"}
# Older configs have one boolean per mode.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}


class Pooling(TypedDict):
    """Computation of a sentence embedding from the last hidden states.

    Attributes:
        pooling: `pooling` argument of `TokenPooling`.
        normalize: whether the embedding is divided by its L2 norm.
    """

    pooling: str
    normalize: bool


def read_pooling(path: pathlib.Path) -> Pooling:
    """Return the pooling that the files of a folder describe.

    Args:
        path: path of the folder. If it has no `modules.json`, the embedding is the mean
            over the tokens, not normalized.

    Raises:
        ValueError: for an unsupported pooling.
    """
    if not (path / MODULES).is_file():
        return {"pooling": "mean", "normalize": False}
    modules = read_json(path / MODULES, list)
    kinds = [
        str(_module_entry(module, "type")).rpartition(".")[2] for module in modules
    ]
    unknown = set(kinds) - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise ValueError(
            f"The modules in `{MODULES}` must be of the types Transformer, Pooling and "
            f"Normalize. Received: types={sorted(unknown)}"
        )
    pooling = "mean"
    if "Pooling" in kinds:
        folder = _module_entry(modules[kinds.index("Pooling")], "path")
        folder = check_inside(MODULES, folder)
        pooling = _pooling_argument(read_json(path / folder / "config.json"))
    return {"pooling": pooling, "normalize": "Normalize" in kinds}


def _module_entry(module: Any, name: str) -> Any:
    if not isinstance(module, dict) or name not in module:
        raise ValueError(
            f"`{MODULES}` must be a list of modules with 'type' and 'path'. "
            f"Received: module={module!r}"
        )
    return module[name]


def _pooling_argument(config: dict[str, Any]) -> str:
    """Return the `pooling` argument of `TokenPooling` for a pooling module's config."""
    modes = config.get("pooling_mode")
    if modes is None:
        enabled = [name for name, value in config.items() if value is True]
        enabled = [name for name in enabled if name.startswith("pooling_mode")]
        modes = [_SWITCHES.get(name, name) for name in enabled]
    modes = [modes] if isinstance(modes, str) else modes
    for pooling, mode in _MODES.items():
        if modes == [mode]:
            return pooling
    raise ValueError(
        f"The pooling mode must be one of {list(_MODES.values())}. "
        f"Received: pooling_mode={modes}"
    )


def pooling_files(pooling: Pooling, embedding_dim: int) -> dict[str, Any]:
    """Return the JSON files that describe a pooling, the inverse of `read_pooling`.

    Args:
        pooling: result of `read_pooling`.
        embedding_dim: size of the embedding.

    Returns:
        A dict from the path of each file in the folder to its contents.
    """
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    if not pooling["normalize"]:
        del kinds["2_Normalize"]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, (path, kind) in enumerate(kinds.items())
    ]
    mode = _MODES[pooling["pooling"]]
    switches = {name: mode == value for name, value in _SWITCHES.items()}
    config = {"word_embedding_dimension": embedding_dim, **switches}
    return {MODULES: modules, "1_Pooling/config.json": config}
