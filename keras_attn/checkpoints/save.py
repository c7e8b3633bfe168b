"""Saving models in the format of published models."""

import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_attn import _atomic_folder
from keras_attn._types import Model
from keras_attn.checkpoints.families import FAMILIES
from keras_attn.checkpoints.folder import CONFIG, INDEX, WEIGHTS, Config
from keras_attn.checkpoints.published_model import PublishedModel
from keras_attn.checkpoints.sentence_embedding import pooling_files
from keras_attn.checkpoints.weight_map import Entry

__all__ = ["save"]


# Files next to the config and the weights that do not depend on the weights.
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt"),
    *("spiece.model", "tokenizer.model", "source.spm", "target.spm"),
    *("merges.txt", "target_vocab.json", "added_tokens.json"),
    *("special_tokens_map.json", "generation_config.json", "preprocessor_config.json"),
    "chat_template.jinja",
)
# Stored in `keras_attn_files.json`: folders with a different value are not replaced.
# Do not reword.
_KIND = "a published model"
_SENTENCE_FILES = ("sentence_bert_config.json", "config_sentence_transformers.json")


def save(
    model: Model,
    path: str | os.PathLike[str],
    overwrite: bool = False,
    max_shard_size: int = 5 * 10**9,
    *,
    tokenizer_from: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """Save a model that `load` returned in the format of published models.

    The result is a folder with `config.json` and `model.safetensors`, or several weight
    files and their index, that `load` and `transformers` can read. It is written under
    a temporary name and then renamed, so that a failed call leaves no partial files,
    and one that is killed leaves an existing model as it was. All files are listed in
    `keras_attn_files.json`.

    Args:
        model: `keras.Model` that `load` returned, with or without further training, or
            such a model saved and loaded by Keras.
        path: path of the folder. It is created, including its parents.
        overwrite: bool, whether to replace an existing folder, one that `save` has
            written and that contains no other files.
        max_shard_size: int, maximum size of a weight file in bytes. A tensor is never
            split across files.
        tokenizer_from: path of the folder that the model was loaded from. Its
            tokenizer, generation and preprocessor files are copied. Default: none are.

    Returns:
        The path of the folder, a `pathlib.Path`.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is False, or it contains files
            that `save` has not written; the message names them.
        FileNotFoundError: if the folder `tokenizer_from` does not exist.
        OSError: if `path` cannot be written.
        ValueError: for a model that `load` did not return, or one with weights that the
            format cannot represent, such as adapters that have not been merged.

    Example:
        The folder here contains a GPT-2 with no blocks, to keep the example short.

        >>> import json, pathlib, tempfile
        >>> import numpy as np
        >>> from safetensors.numpy import save_file
        >>> from keras_attn import checkpoints
        >>> temporary = tempfile.TemporaryDirectory()
        >>> folder = pathlib.Path(temporary.name)
        >>> config = {"model_type": "gpt2", "vocab_size": 11, "n_positions": 16,
        ...           "n_embd": 4, "n_layer": 0, "n_head": 2,
        ...           "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-5}
        >>> _ = (folder / "config.json").write_text(json.dumps(config))
        >>> tensors = {"wte.weight": np.ones((11, 4), "float32"),
        ...            "wpe.weight": np.ones((16, 4), "float32"),
        ...            "ln_f.weight": np.ones(4, "float32"),
        ...            "ln_f.bias": np.zeros(4, "float32")}
        >>> save_file(tensors, folder / "model.safetensors")
        >>> model = checkpoints.load(folder, task="causal_language_model")
        >>> model.compile("adam", "mse")
        >>> _ = model.fit(np.ones((2, 3)), np.zeros((2, 3, 11)), verbose=0)
        >>> path = checkpoints.save(model, folder / "tuned")
        >>> sorted(file.name for file in path.iterdir())
        ['config.json', 'keras_attn_files.json', 'model.safetensors']
        >>> json.loads((path / "config.json").read_text())["architectures"]
        ['GPT2LMHeadModel']
        >>> temporary.cleanup()
    """
    if not isinstance(model, PublishedModel) or not model.published:
        raise ValueError(
            "Expected a model returned by `checkpoints.load`; other models, such as a "
            "clone by `keras.models.clone_model`, cannot be saved in the format of "
            "published models. To save the weights of a clone, copy them to the "
            "original with `original.set_weights(clone.get_weights())`. "
            f"Received: model={model}"
        )
    path = _atomic_folder.check_path(path, overwrite, _KIND)
    copied_files = []
    if tokenizer_from is not None:
        is_embedder = model.published.get("pooling") is not None
        names = _TOKENIZER_FILES + (_SENTENCE_FILES if is_embedder else ())
        copied_files = _existing_files(tokenizer_from, names)
    family, task = FAMILIES[model.published["family"]], model.published["task"]
    config = Config(model.published["config"])
    entries = family.weight_map(model, config, task)
    _check_complete(model, entries)
    weights = {weight.path: weight for weight in model.weights}
    dtype = keras.backend.standardize_dtype(weights[entries[0].weights[0]].dtype)
    has_head = family.tasks[task] != next(iter(family.tasks.values()))

    def tensors_of(entry: Entry) -> Iterator[tuple[str, np.ndarray]]:
        values = (keras.ops.convert_to_numpy(weights[p]) for p in entry.weights)
        arrays = tuple(np.asarray(value) for value in values)
        for name, array in zip(entry.tensors, entry.layout.to_tensors(arrays)):
            if not has_head:
                name = name.removeprefix(family.base_prefix)
            yield name, np.ascontiguousarray(array)

    with _atomic_folder.write(path, overwrite, _KIND) as folder:
        content = {**config, "dtype": dtype, "torch_dtype": dtype}
        _write_json(folder / CONFIG, content)
        for file, content in _pooling_files(model).items():
            (folder / file).parent.mkdir(exist_ok=True)
            _write_json(folder / file, content)
        _write_shards(folder, entries, tensors_of, max_shard_size, weights)
        for file in copied_files:
            shutil.copyfile(file, folder / file.name)
    return path


def _pooling_files(model: PublishedModel) -> dict[str, Any]:
    """Return the JSON files that describe the model's pooling, if it has one."""
    pooling = (model.published or {}).get("pooling")
    if pooling is None:
        return {}
    output: Any = model.output
    return pooling_files(pooling, output.shape[-1])


def _existing_files(
    path: str | os.PathLike[str], names: Sequence[str]
) -> list[pathlib.Path]:
    path = pathlib.Path(path)
    if not path.is_dir():
        raise FileNotFoundError(
            f"Expected a folder with tokenizer files. Received: tokenizer_from={path!s}"
        )
    return [path / name for name in names if (path / name).is_file()]


def _check_complete(model: keras.Model, entries: Sequence[Entry]) -> None:
    """Raise a ValueError if the model has weights without an entry."""
    known = {path for entry in entries for path in entry.weights}
    seeds = {id(v) for v in model.non_trainable_variables if "seed" in v.path}
    unknown = [
        w.path for w in model.weights if w.path not in known and id(w) not in seeds
    ]
    if unknown:
        raise ValueError(
            "Every weight must have a tensor in the format of published models; merge "
            f"adapters before saving. Received: weights={sorted(unknown)[:8]}"
        )


def _write_shards(
    folder: pathlib.Path,
    entries: Sequence[Entry],
    tensors_of: Callable[[Entry], Iterator[tuple[str, np.ndarray]]],
    max_shard_size: int,
    weights: Mapping[str, keras.Variable],
) -> None:
    """Write the weights to one or several files, with one file in memory at a time."""
    from safetensors.numpy import save_file

    shards: list[list[Entry]] = [[]]
    size = 0
    for entry in entries:
        entry_size = sum(_num_bytes(weights[path]) for path in entry.weights)
        if shards[-1] and size + entry_size > max_shard_size:
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += entry_size
    index: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, 1):
        file = WEIGHTS
        if len(shards) > 1:
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = dict(pair for entry in shard for pair in tensors_of(entry))
        save_file(tensors, folder / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(tensors, file))
        total += sum(array.nbytes for array in tensors.values())
    if len(shards) > 1:
        content = {"metadata": {"total_size": total}, "weight_map": index}
        _write_json(folder / INDEX, content)


def _num_bytes(weight: keras.Variable) -> int:
    size = np.dtype("uint16" if "16" in str(weight.dtype) else "float32").itemsize
    return int(np.prod(weight.shape)) * size


def _write_json(path: pathlib.Path, content: Any) -> None:
    text = json.dumps(content, indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
