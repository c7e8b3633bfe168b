"""One vector for a text: how a folder says that the tokens' are pooled."""

import json

from keras_attn.checkpoints.folder import read_json

__all__ = ["pooling_of"]

_MODES = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}


def pooling_of(path):
    """How texts become one vector, as the files of a folder have it.

    Args:
        path: `pathlib.Path` of a folder, with `modules.json` or without.

    Returns:
        A dict: `"pooling"`, what `TokenPooling` takes, and `"normalize"`, whether the
        vector is divided by its length.

    Raises:
        ValueError: if it pools in a way that is not known here.
    """
    if not (path / "modules.json").is_file():
        return {"pooling": "mean", "normalize": False}
    modules = json.loads((path / "modules.json").read_text(encoding="utf-8"))
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    unknown = set(kinds) - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise ValueError(
            "`modules.json` may name Transformer, Pooling and Normalize. "
            f"Received: {sorted(unknown)}"
        )
    pooling = "mean"
    if "Pooling" in kinds:
        folder = path / modules[kinds.index("Pooling")]["path"]
        config = read_json(folder / "config.json")
        on = [name for name, value in config.items() if value is True]
        on = [name for name in on if name.startswith("pooling_mode")]
        if len(on) != 1 or on[0] not in _MODES:
            raise ValueError(
                f"Texts are pooled by one of {sorted(_MODES)}. Received: {on}"
            )
        pooling = _MODES[on[0]]
    return {"pooling": pooling, "normalize": "Normalize" in kinds}
