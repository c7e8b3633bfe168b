"""A model of ours in the format that published models come in."""

import json
import pathlib
import shutil

import keras
import numpy as np

from keras_attn import _atomic_folder
from keras_attn.checkpoints.families import FAMILIES
from keras_attn.checkpoints.folder import CONFIG, INDEX, WEIGHTS, Config
from keras_attn.checkpoints.published_model import PublishedModel
from keras_attn.checkpoints.sentence_embedding import pooling_files

__all__ = ["save"]


# What stands beside config and weights, and does not change with them.
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt"),
    *("spiece.model", "tokenizer.model", "source.spm", "target.spm"),
    *("merges.txt", "target_vocab.json", "added_tokens.json"),
    *("special_tokens_map.json", "generation_config.json", "preprocessor_config.json"),
    "chat_template.jinja",
)
_SENTENCE_FILES = ("sentence_bert_config.json", "config_sentence_transformers.json")


def save(
    model, path, overwrite=False, max_shard_size=5 * 10**9, *, tokenizer_from=None
):
    """Writes a model that `load` gave in the format it came in.

    A folder with `config.json` and `model.safetensors`, or several such files and
    their index, which `load` and `transformers` read. It is written under a temporary
    name and renamed: what fails leaves nothing behind.

    Args:
        model: what `load` gave, trained since or not, or such a model saved and
            loaded by Keras.
        path: folder to make; folders above it are made as well.
        overwrite: bool, whether to replace a folder with a model.
        max_shard_size: int, most bytes of a file; a tensor is in one file.
        tokenizer_from: path of the folder that the model came from: its tokenizer
            files, and how to generate or preprocess, are copied. Default: none are.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is False.
        FileNotFoundError: if there is no folder `tokenizer_from`.
        OSError: if `path` cannot be written.
        ValueError: for another model, or one with weights that the format has no
            place for, such as adapters that have not been merged.

    Example:
        >>> model = load("all-MiniLM-L6-v2", task="classification", num_classes=4)
        >>> model.fit(dataset)
        >>> save(model, "classifier", tokenizer_from="all-MiniLM-L6-v2")
    """
    if not isinstance(model, PublishedModel) or not model.published:
        raise ValueError(
            "Expected a model that `checkpoints.load` has given; the format has no "
            f"way to describe others. Received: model={model}"
        )
    path = _atomic_folder.check_path(path, overwrite, "a published model", CONFIG)
    beside = []
    if tokenizer_from is not None:
        is_embedder = model.published.get("pooling") is not None
        names = _TOKENIZER_FILES + (_SENTENCE_FILES if is_embedder else ())
        beside = _files(tokenizer_from, names)
    family, task = FAMILIES[model.published["family"]], model.published["task"]
    config = Config(model.published["config"])
    entries = family.names(model, config, task)
    _check_complete(model, entries)
    weights = {weight.path: weight for weight in model.weights}
    dtype = keras.backend.standardize_dtype(weights[entries[0].ours[0]].dtype)
    without_head = family.tasks[task] == next(iter(family.tasks.values()))

    def tensors(entry):
        arrays = tuple(keras.ops.convert_to_numpy(weights[p]) for p in entry.ours)
        for name, array in zip(entry.theirs, entry.layout.write(arrays)):
            if without_head:
                name = name.removeprefix(family.base)
            yield name, np.ascontiguousarray(array)

    with _atomic_folder.write(path) as folder:
        content = {**config, "dtype": dtype, "torch_dtype": dtype}
        _write_json(folder / CONFIG, content)
        for file, content in _beside_weights(model).items():
            (folder / file).parent.mkdir(exist_ok=True)
            _write_json(folder / file, content)
        _write_shards(folder, entries, tensors, max_shard_size, weights)
        for file in beside:
            shutil.copyfile(file, folder / file.name)
    return path


def _beside_weights(model):
    """Files that say what is done after the last block: path and content."""
    pooling = model.published.get("pooling")
    return {} if pooling is None else pooling_files(pooling, model.output.shape[-1])


def _files(path, names):
    path = pathlib.Path(path)
    if not path.is_dir():
        raise FileNotFoundError(
            f"Expected a folder with tokenizer files. Received: tokenizer_from={path!s}"
        )
    return [path / name for name in names if (path / name).is_file()]


def _check_complete(model, entries):
    """Raise where the model has weights that no entry speaks of."""
    known = {path for entry in entries for path in entry.ours}
    seeds = {id(v) for v in model.non_trainable_variables if "seed" in v.path}
    other = [
        w.path for w in model.weights if w.path not in known and id(w) not in seeds
    ]
    if other:
        raise ValueError(
            "The format of published models has no place for some weights (adapters "
            f"are to be merged before). Received: {sorted(other)[:8]}"
        )


def _write_shards(folder, entries, tensors, max_shard_size, weights):
    """Weights, as many files as it takes, one in memory at a time."""
    from safetensors.numpy import save_file

    shards, size = [[]], 0
    for entry in entries:
        own = sum(_bytes(weights[path]) for path in entry.ours)
        if shards[-1] and size + own > max_shard_size:
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += own
    index, total = {}, 0
    for number, shard in enumerate(shards, 1):
        file = WEIGHTS
        if len(shards) > 1:
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        found = dict(pair for entry in shard for pair in tensors(entry))
        save_file(found, folder / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(found, file))
        total += sum(array.nbytes for array in found.values())
    if len(shards) > 1:
        content = {"metadata": {"total_size": total}, "weight_map": index}
        _write_json(folder / INDEX, content)


def _bytes(weight):
    size = np.dtype("uint16" if "16" in str(weight.dtype) else "float32").itemsize
    return int(np.prod(weight.shape)) * size


def _write_json(path, content):
    text = json.dumps(content, indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
