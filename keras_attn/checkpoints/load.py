"""A published model as a Functional model of our layers."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_attn._keras_internals import initial_values
from keras_attn.checkpoints.families import FAMILIES
from keras_attn.checkpoints.family import Options
from keras_attn.checkpoints.folder import Folder
from keras_attn.checkpoints.published_model import PublishedModel
from keras_attn.checkpoints.sentence_embedding import pooling_of
from keras_attn.layers._internal.arguments import positive_int

__all__ = ["load"]


def load(
    path,
    task=None,
    dtype=None,
    *,
    num_classes=None,
    use_segments=False,
    dropout=None,
    name=None,
):
    """A published model out of its folder, as a Functional model of our layers.

    Nothing is downloaded, and no file is run: weights come from safetensors files,
    one tensor at a time, so that memory stays near the size of the weights.

    Families, by the `model_type` of `config.json`: `bert` (MiniLM is one), `roberta`,
    `distilbert`; `gpt2`; `marian`, `bart`; `t5` (v1.1 and Flan too); `llama`,
    `mistral`, `qwen2`, `qwen3`; `vit`.

    Args:
        path: of a folder with `config.json` and `model.safetensors`, or its shards
            and their index.
        task: what the model is for. Default: what it was made for, or, with
            `num_classes`, `"classification"`.
            - `"hidden_states"`: `(B, T, D)`, what the last block gives.
            - `"sentence_embedding"`: one vector a text, `(B, D)`, pooled as the
              folder's `modules.json` says, else the mean of its tokens. (How long
              a text may be, its `max_seq_length`, is for who makes the ids.)
            - `"classification"`: logits `(B, num_classes)`.
            - `"masked_language_model"`, `"causal_language_model"`: logits
              `(B, T, V)`, of the token at, or after, a position.
            - `"translation"`: logits of `{"source": (B, S), "target": (B, T)}`; any
              text to text, whatever the model was trained for.
        dtype: of weights and computation, or a Keras dtype policy. Default: Keras's
            own, float32 unless set otherwise. A bfloat16 model stays one with
            `dtype="bfloat16"`.
        num_classes: int, for `"classification"`: a new head of so many classes, unless
            the model is a classifier of as many.
        use_segments: bool, whether a model of the BERT family takes the numbers of
            segments as well, `{"tokens": (B, T), "segments": (B, T)}`. Else all is
            segment 0.
        dropout: float, of all layers of a Transformer block, for training. Default:
            that of the config.
        name: of the model.

    Returns:
        A `keras.Model`, Functional. Its inputs are `"tokens"` (BERT), `"target"`
        (GPT-2, Llama), given as they are, a dict of `"source"` and `"target"` (Marian,
        BART, T5), int32 ids, or `"image"`, floats `(B, height, width, channels)` (ViT).
        Padding is where the ids are the config's `pad_token_id`; causal language models
        know no padding, which goes at the end, where nothing sees it.

    Raises:
        FileNotFoundError: if the folder lacks the config or weights.
        ValueError: for a family or a task that is not supported, weights that are
            missing, left over or of another shape, a file that is truncated, pickled
            or outside the folder.

    Example:
        >>> model = load("all-MiniLM-L6-v2", task="sentence_embedding")
        >>> model(token_ids).shape
        (2, 384)
    """
    folder = Folder(path)
    family = _family(folder.config)
    made_for = family.task_of(folder.config.get("architectures") or ())
    if task is None:
        task = made_for if num_classes is None else "classification"
    if task not in family.tasks:
        raise ValueError(
            f"`task` must be one of {list(family.tasks)} for a model of the family "
            f"'{family.name}'. Received: task={task!r}"
        )
    settings = _settings(folder, family, task, made_for, num_classes)
    settings = {**family.settings(folder), **settings}
    config = type(folder.config)({**folder.config, **settings})
    pooling = pooling_of(folder.path) if task == "sentence_embedding" else None
    options = Options(dropout, use_segments, pooling)
    with initial_values() as give, _default_dtype(dtype):
        inputs, outputs = family.build(config, task, options)
        published = {
            "family": family.name,
            "task": task,
            "config": dict(config),
            "pooling": pooling,
        }
        model = PublishedModel(
            inputs, outputs, name=name or family.name, published=published
        )
        fresh = family.fresh if made_for != task or num_classes else ()
        has_other_head = task == "classification" and made_for != task
        unread = ("logits",) if has_other_head else ()
        sources = _matched(folder, family, model, config, task, fresh, unread)
        for weight in model.weights:
            if weight.path in sources:
                give(weight, _reader(folder, *sources[weight.path]))
    return model


def _family(config):
    name = config.get("model_type")
    if name not in FAMILIES:
        raise ValueError(
            f"The family of a model, `model_type` of `config.json`, must be one of "
            f"{sorted(FAMILIES)}. Received: model_type={name!r}"
        )
    return FAMILIES[name]


def _settings(folder, family, task, made_for, num_classes):
    """What of the config the task changes."""
    settings = {"architectures": [family.tasks[task]]}
    if task != "classification":
        if num_classes is not None:
            raise ValueError(
                "`num_classes` is for the task 'classification'. "
                f"Received: num_classes={num_classes}, task={task!r}"
            )
        return settings
    labels = folder.config.get("id2label")
    if num_classes is not None:
        num_classes = positive_int("num_classes", num_classes)
        if not labels or len(labels) != num_classes:
            labels = {str(i): f"LABEL_{i}" for i in range(num_classes)}
            settings["label2id"] = {name: int(i) for i, name in labels.items()}
    elif made_for != task:
        raise ValueError(
            "This model has no classes: give `num_classes` for a new head. "
            f"Received: num_classes=None, architectures="
            f"{folder.config.get('architectures')}"
        )
    return {**settings, "id2label": labels or {"0": "LABEL_0", "1": "LABEL_1"}}


def _matched(folder, family, model, config, task, fresh, unread):
    """Dict from the path of each weight of ours to its entry and tensors of theirs.

    Args:
        fresh: layers that are new where the file does not have them.
        unread: layers that are new in any case.

    Raises:
        ValueError: where they do not fit.
    """
    weights = {weight.path: weight for weight in model.weights}
    sources, missing, wrong, used = {}, [], [], set()
    for entry in family.names(model, config, task):
        names = [_spelled(name, folder, family) for name in entry.theirs]
        used.update(names)
        shapes = tuple(tuple(weights[path].shape) for path in entry.ours)
        expected = dict(zip(names, entry.layout.shapes(shapes)))
        layer = entry.ours[0].split("/")[0]
        if layer in unread:
            continue
        new = layer in fresh
        lacking = [name for name in names if name not in folder.shapes]
        differing = [
            f"{name} {folder.shapes[name]}, expected {shape}"
            for name, shape in expected.items()
            if name in folder.shapes and folder.shapes[name] != shape
        ]
        if new and (lacking or differing):
            continue
        missing += lacking
        wrong += differing
        for path in entry.ours:
            sources[path] = names, entry, shapes
    known = tuple(
        prefix for head in family.heads for prefix in (head, family.base + head)
    )
    left = [
        name
        for name in folder.shapes
        if name not in used
        and not name.startswith(known)
        and not name.endswith(family.buffers)
    ]
    problems = {"missing": missing, "of another shape": wrong, "left over": left}
    if any(problems.values()):
        told = "; ".join(
            f"{what}: {_listed(names)}" for what, names in problems.items() if names
        )
        raise ValueError(
            f"The weights must be those of a {config['architectures'][0]}, as "
            f"`config.json` describes it. Received, in {folder.path}: {told}"
        )
    return sources


def _spelled(name, folder, family):
    """`name` as this file has it."""
    found = (n for n in family.spellings(name) if n in folder.shapes)
    return next(found, name)


def _listed(names, most=8):
    names = sorted(names)
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _reader(folder, names, entry, shapes):
    """A function that gives the value of a weight of ours, a tensor."""
    layout = entry.layout

    def read(path, dtype):
        arrays = tuple(folder.read(name) for name in names)
        found = layout.read(arrays, shapes)[entry.ours.index(path)]
        return ops.convert_to_tensor(np.ascontiguousarray(found), dtype=dtype)

    if len(names) > 1 or not folder.is_large(names[0]):
        return read
    (shape,), (name,) = shapes, names
    axis = layout.rows_axis(shape)

    def read_in_parts(path, dtype):
        parts = []
        for array in folder.read_parts(name):
            own = tuple(len(array) if i == axis else n for i, n in enumerate(shape))
            (part,) = layout.read((array,), (own,))
            part = ops.convert_to_tensor(np.ascontiguousarray(part), dtype=dtype)
            # A tensor of TensorFlow's keeps the array that it is made of, a copy not.
            parts.append(ops.copy(part))
        return ops.concatenate(parts, axis=axis)

    return read if axis is None else read_in_parts


@contextlib.contextmanager
def _default_dtype(dtype):
    """Layers made inside are of this dtype, None for Keras's own."""
    before = keras.config.dtype_policy()
    if dtype is not None:
        keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
