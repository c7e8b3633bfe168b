"""One vector for a text: how a folder says that the tokens' are pooled."""

from keras_attn.checkpoints.folder import inside, read_json

__all__ = ["pooling_files", "pooling_of"]

MODULES = "modules.json"
# Our names of poolings, theirs, and those of older folders, a switch for each.
_MODES = {"first": "cls", "mean": "mean", "max": "max"}
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
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
    if not (path / MODULES).is_file():
        return {"pooling": "mean", "normalize": False}
    modules = read_json(path / MODULES, list)
    kinds = [str(_entry(module, "type")).rpartition(".")[2] for module in modules]
    unknown = set(kinds) - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise ValueError(
            f"`{MODULES}` may name Transformer, Pooling and Normalize. "
            f"Received: {sorted(unknown)}"
        )
    pooling = "mean"
    if "Pooling" in kinds:
        folder = inside(MODULES, _entry(modules[kinds.index("Pooling")], "path"))
        pooling = _pooling(read_json(path / folder / "config.json"))
    return {"pooling": pooling, "normalize": "Normalize" in kinds}


def _entry(module, name):
    if not isinstance(module, dict) or name not in module:
        raise ValueError(
            f"`{MODULES}` must be a list of modules with 'type' and 'path'. "
            f"Received: {module!r}"
        )
    return module[name]


def _pooling(config):
    """Our name of the pooling that a config describes."""
    modes = config.get("pooling_mode")
    if modes is None:
        on = [name for name, value in config.items() if value is True]
        on = [name for name in on if name.startswith("pooling_mode")]
        modes = [_SWITCHES.get(name, name) for name in on]
    modes = [modes] if isinstance(modes, str) else modes
    for ours, theirs in _MODES.items():
        if modes == [theirs]:
            return ours
    raise ValueError(
        f"Texts are pooled by one of {list(_MODES.values())}. Received: {modes}"
    )


def pooling_files(pooling, width):
    """What `pooling_of` reads, to be written.

    Args:
        pooling: what it gave.
        width: int, of a vector.

    Returns:
        A dict from the path of a file in the folder to what it holds.
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
    config = {name: mode == theirs for name, theirs in _SWITCHES.items()}
    config = {"word_embedding_dimension": width, **config}
    return {MODULES: modules, "1_Pooling/config.json": config}
