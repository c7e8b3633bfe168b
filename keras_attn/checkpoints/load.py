"""Loading published models as Functional models."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn._keras_internals import deferred_initialization
from keras_attn._types import DTypeLike, Tensor
from keras_attn.checkpoints.check_config import check_config
from keras_attn.checkpoints.families import FAMILIES
from keras_attn.checkpoints.family import BuildOptions, Family
from keras_attn.checkpoints.folder import Config, Folder, read_json
from keras_attn.checkpoints.published_model import PublishedModel
from keras_attn.checkpoints.sentence_embedding import read_pooling
from keras_attn.checkpoints.weight_map import Entry, Shapes
from keras_attn.layers._internal.arguments import positive_int
from keras_attn.models.half_precision import check_dtype

__all__ = ["load"]


def load(
    path: str | os.PathLike[str],
    task: str | None = None,
    dtype: DTypeLike | None = None,
    *,
    num_classes: int | None = None,
    use_token_type_ids: bool = False,
    dropout: float | None = None,
    name: str | None = None,
) -> keras.Model:
    """Load a published model as a Functional model of keras_attn layers.

    Nothing is downloaded and no code from the folder is executed. Weights are read from
    safetensors files one tensor at a time, so that the peak of memory is close to the
    size of the weights.

    Supported families, by `model_type` in `config.json`: `bert` (including MiniLM),
    `roberta`, `distilbert`; `gpt2`; `marian`, `bart`; `t5` (including v1.1 and Flan);
    `llama`, `mistral`, `qwen2`, `qwen3`; `vit`.

    Args:
        path: path of a folder with `config.json` and either `model.safetensors` or
            several weight files and their index.
        task: the task, which decides the output. Default: the task that the model was
            saved for or, with `num_classes`, `"classification"`.
            - `"hidden_states"`: `(B, T, D)`, the output of the last block.
            - `"sentence_embedding"`: `(B, D)`, one vector per text, pooled as described
              in the folder's `modules.json`, by default the mean over the tokens.
              (Limit the token ids to `max_seq_length` yourself.)
            - `"classification"`: logits `(B, num_classes)`.
            - `"masked_language_model"`: logits `(B, T, V)` of each token.
            - `"causal_language_model"`: logits `(B, T, V)` of the next token.
            - `"translation"`: logits `(B, T, V)` of the next target token, for any
              text-to-text model.
        dtype: dtype or Keras dtype policy of the layers. Default: Keras's default
            policy, usually float32. Pass `"bfloat16"` to keep bfloat16 weights as they
            are stored, and `"mixed_bfloat16"` to train them.
        num_classes: int, number of classes of `"classification"`. The head is newly
            initialized unless the model is a classifier with this number of classes.
        use_token_type_ids: bool, whether the token type ids of a BERT model are an
            input; otherwise all of them are 0.
        dropout: float in [0, 1), dropout rate of all layers, for training. Default: the
            rates of the config.
        name: str, name of the model.

    Returns:
        A Functional `keras.Model`. Its inputs, int32 ids unless noted, are:
        - BERT, GPT-2, Llama and similar models: a tensor `(B, T)`, named `"token_ids"`.
          With `use_token_type_ids`: a dict of `"token_ids"` and `"token_type_ids"`,
          both `(B, T)`.
        - Marian, BART, T5: a dict of `"source"` `(B, S)` and `"target"` `(B, T)`.
        - ViT: a float tensor `(B, height, width, channels)`, named `"image"`.

        `decoding.generate` does not generate the tokens that are words of one token in
        `bad_words_ids`, unless `banned_token_ids` is passed.

        Positions whose id is the config's `pad_token_id` are padding. Causal language
        models do not mask padding: put it at the end, where no token attends to it.

    Raises:
        FileNotFoundError: if the folder, its config or its weights are missing.
        ValueError: for an unsupported family or task; for a quantized `dtype`; for
            tensors that are missing, unexpected or of the wrong shape; for a file that
            is truncated, pickled or outside the folder.

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
        >>> tuple(model(np.array([[3, 4, 5]])).shape)
        (1, 3, 11)
        >>> states = checkpoints.load(folder, task="hidden_states")
        >>> tuple(states(np.array([[3, 4, 5]])).shape)
        (1, 3, 4)
        >>> temporary.cleanup()
    """
    check_dtype(dtype)
    folder = Folder(path)
    family = _family(folder.config)
    saved_task = family.task_of(folder.config.get("architectures") or ())
    if task is None:
        task = saved_task if num_classes is None else "classification"
    if task not in family.tasks:
        raise ValueError(
            f"`task` must be one of {list(family.tasks)} for a model of the family "
            f"'{family.name}'. Received: task={task!r}"
        )
    overrides = _task_overrides(folder, family, task, saved_task, num_classes)
    overrides = {**family.config_overrides(folder), **overrides}
    config = Config({**folder.config, **overrides})
    uses_padding = "causal_language_model" not in family.tasks
    check_config(config, folder.shapes, uses_padding)
    pooling = read_pooling(folder.path) if task == "sentence_embedding" else None
    options = BuildOptions(dropout, use_token_type_ids, pooling)
    with deferred_initialization() as set_initial_value, _default_dtype(dtype):
        inputs, outputs = family.build(config, task, options)
        published = {
            "family": family.name,
            "task": task,
            "config": dict(config),
            "pooling": pooling,
            "banned_token_ids": _banned_token_ids(folder),
        }
        model = PublishedModel(
            inputs, outputs, name=name or family.name, published=published
        )
        entries = family.weight_map(model, config, task)
        optional = family.new_layers if saved_task != task or num_classes else ()
        has_other_head = task == "classification" and saved_task != task
        new = ("logits",) if has_other_head else ()
        sources = _match_tensors(folder, family, model, config, entries, optional, new)
        for weight in model.weights:
            if weight.path in sources:
                reader = _reader(folder, *sources[weight.path])
                set_initial_value(weight, reader)
    return model


def _family(config: Config) -> Family:
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(
            f"`model_type` in `config.json` must be one of {sorted(FAMILIES)}. "
            f"Received: model_type={name!r}"
        )
    return FAMILIES[name]


def _banned_token_ids(folder: Folder) -> list[int]:
    """Return the words of one token in `bad_words_ids`.

    They are in `generation_config.json`, in older folders in `config.json`. Marian's
    padding id is one of them: its logit is larger than all others.
    """
    content: dict[str, Any] = folder.config
    if (folder.path / _GENERATION_CONFIG).is_file():
        content = read_json(folder.path / _GENERATION_CONFIG)
    words = content.get("bad_words_ids") or folder.config.get("bad_words_ids") or []
    is_valid = isinstance(words, list) and all(
        isinstance(word, list) and all(isinstance(i, int) for i in word)
        for word in words
    )
    if not is_valid:
        raise ValueError(
            "`bad_words_ids` must be a list of lists of token ids. "
            f"Received: bad_words_ids={words!r} in {folder.path}"
        )
    return sorted({word[0] for word in words if len(word) == 1})


def _task_overrides(
    folder: Folder,
    family: Family,
    task: str,
    saved_task: str,
    num_classes: int | None,
) -> dict[str, Any]:
    """Return the config entries that the task and the number of classes replace."""
    overrides: dict[str, Any] = {"architectures": [family.tasks[task]]}
    if task != "classification":
        if num_classes is not None:
            raise ValueError(
                "`num_classes` requires the task 'classification'. "
                f"Received: num_classes={num_classes}, task={task!r}"
            )
        return overrides
    labels = folder.config.get("id2label")
    if num_classes is not None:
        num_labels: int = positive_int("num_classes", num_classes)
        if not labels or len(labels) != num_labels:
            labels = {str(i): f"LABEL_{i}" for i in range(num_labels)}
            overrides["label2id"] = {name: int(i) for i, name in labels.items()}
    elif saved_task != task:
        raise ValueError(
            "The model has no classification head; pass `num_classes` to add one. "
            f"Received: num_classes=None, architectures="
            f"{folder.config.get('architectures')}"
        )
    return {**overrides, "id2label": labels or {"0": "LABEL_0", "1": "LABEL_1"}}


_GENERATION_CONFIG = "generation_config.json"
# Names of dtypes in safetensors files.
_FLOATS = ("F64", "F32", "F16", "BF16")
_Source = tuple[Sequence[str], Entry, Shapes]


def _match_tensors(
    folder: Folder,
    family: Family,
    model: keras.Model,
    config: Config,
    entries: Sequence[Entry],
    optional_layers: Sequence[str],
    new_layers: Sequence[str],
) -> dict[str, _Source]:
    """Return the tensors, the entry and the shapes for the path of each weight.

    Args:
        folder: the folder.
        family: the family of the model.
        model: the model.
        config: the config of the model.
        entries: the entries of the model's weights.
        optional_layers: layers that keep their initial values if the file does not
            contain them, or contains them with other shapes.
        new_layers: layers that always keep their initial values.

    Raises:
        ValueError: if tensors are missing, of the wrong shape or unexpected.
    """
    weights = {weight.path: weight for weight in model.weights}
    sources: dict[str, _Source] = {}
    missing: list[str] = []
    wrong_shape: list[str] = []
    not_float: list[str] = []
    used: set[str] = set()
    for entry in entries:
        names = [_name_in_folder(name, folder, family) for name in entry.tensors]
        used.update(names)
        shapes = tuple(tuple(weights[path].shape) for path in entry.weights)
        expected = dict(zip(names, entry.layout.tensor_shapes(shapes)))
        layer = entry.weights[0].split("/")[0]
        if layer in new_layers:
            continue
        entry_missing = [name for name in names if name not in folder.shapes]
        entry_wrong_shape = [
            f"{name} {folder.shapes[name]}, expected {shape}"
            for name, shape in expected.items()
            if name in folder.shapes and folder.shapes[name] != shape
        ]
        if layer in optional_layers and (entry_missing or entry_wrong_shape):
            continue
        not_float += [
            f"{name} {folder.dtypes[name]}"
            for name in names
            if folder.dtypes.get(name, "F32") not in _FLOATS
        ]
        missing += entry_missing
        wrong_shape += entry_wrong_shape
        for path in entry.weights:
            sources[path] = names, entry, shapes
    unexpected = _unexpected_tensors(folder, family, used)
    problems = {
        "missing": missing,
        "wrong shape": wrong_shape,
        "not of a float dtype": not_float,
        "unexpected": unexpected,
    }
    if any(problems.values()):
        details = "; ".join(
            f"{kind}: {_shortened(names)}" for kind, names in problems.items() if names
        )
        raise ValueError(
            f"Expected the weights of a {config['architectures'][0]} as described by "
            f"`config.json`. Received, in {folder.path}: {details}"
        )
    return sources


def _unexpected_tensors(folder: Folder, family: Family, used: set[str]) -> list[str]:
    """Return the names of tensors that are not used and cannot be ignored."""
    head_prefixes = tuple(
        prefix
        for head in family.head_prefixes
        for prefix in (head, family.base_prefix + head)
    )
    return [
        name
        for name in folder.shapes
        if name not in used
        and not name.startswith(head_prefixes)
        and not name.endswith(family.ignored_suffixes)
    ]


def _name_in_folder(name: str, folder: Folder, family: Family) -> str:
    """Return the name that a tensor has in this folder."""
    present = (n for n in family.candidate_names(name) if n in folder.shapes)
    return next(present, name)


def _shortened(names: Sequence[str], max_names: int = 8) -> str:
    """Return the first names, joined, and the number of the others."""
    names = sorted(names)
    more = len(names) - max_names
    return ", ".join(names[:max_names]) + (f" and {more} more" if more > 0 else "")


def _reader(
    folder: Folder, names: Sequence[str], entry: Entry, shapes: Shapes
) -> Callable[[str, str], Tensor]:
    """Return a function `(path, dtype)` that reads the value of a weight."""
    layout = entry.layout

    def read(path: str, dtype: str) -> Tensor:
        arrays = tuple(folder.read(name) for name in names)
        value = layout.to_weights(arrays, shapes)[entry.weights.index(path)]
        return ops.convert_to_tensor(np.ascontiguousarray(value), dtype=dtype)

    if len(names) > 1 or not folder.is_large(names[0]):
        return read
    (shape,), (name,) = shapes, names
    axis = layout.rows_axis(shape)
    if axis is None:
        return read

    def read_in_chunks(path: str, dtype: str) -> Tensor:
        parts = []
        for array in folder.read_chunks(name):
            part_shape = tuple(
                len(array) if i == axis else n for i, n in enumerate(shape)
            )
            (part,) = layout.to_weights((array,), (part_shape,))
            part = ops.convert_to_tensor(np.ascontiguousarray(part), dtype=dtype)
            # A TensorFlow tensor can keep the NumPy array alive; its copy does not.
            parts.append(ops.copy(part))
        return ops.concatenate(parts, axis=axis)

    return read_in_chunks


@contextlib.contextmanager
def _default_dtype(dtype: DTypeLike | None) -> Iterator[None]:
    """Set the default dtype policy inside the context, unless `dtype` is None."""
    previous = keras.config.dtype_policy()
    if dtype is not None:
        keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)
