"""What `generate` and `stream` are asked for: checked, and as tensors."""

import weakref

import numpy as np
from keras import ops

from keras_attn._graph import functional
from keras_attn.decoding.extend_inputs import continue_inputs
from keras_attn.decoding.loop import DecodingLoop, Search
from keras_attn.decoding.prompts import checked_prefix, shortest_prompt
from keras_attn.decoding.ragged_ids import absent_id, filled, ragged_rows
from keras_attn.decoding.step.model_info import find_target, with_one_output
from keras_attn.decoding.step.step_model import step_model
from keras_attn.decoding.step.vocabulary import masked_id, masked_ids, vocabulary_sizes
from keras_attn.decoding.strategies.keras_hub import as_strategy
from keras_attn.decoding.strategies.logits_processors import Constraints
from keras_attn.layers._internal.arguments import is_int, positive_int
from keras_attn.ops.concrete import check_ids

__all__ = ["Request"]


class Request:
    """One call of `generate` or `stream`, whose arguments it takes.

    Attributes:
        model: the model up to its logits.
        target: name of the input that grows.
        inputs: dict of tensors; of one row where the user's have none.
        rows: int, how many the user's have.
        prefix: int32 `(B, F)` or None; -1 in place of its padding.
        search: a `Search`, what to do with them.
    """

    def __init__(
        self,
        model,
        inputs,
        start_token_id,
        end_token_id,
        max_length,
        strategy,
        target,
        output,
        prefix,
        min_length,
        banned_token_ids,
        padding_id=None,
    ):
        functional.check_functional(model)
        self.model = with_one_output(model, output)
        strategy = as_strategy(strategy)
        max_length = positive_int("max_length", max_length)
        self.target = find_target(self.model, target).name
        constraints = _constraints(
            self.model, end_token_id, min_length, banned_token_ids, max_length
        )
        self._kept = _kept(self.model)
        sizes, masked = self._kept.sizes, self._kept.masked
        inputs = _used(model, self.model, inputs)
        bound = sizes.get(self.target, self.model.outputs[0].shape[-1])
        if padding_id is None:
            padding_id = masked_id(masked, self.target, bound)
        is_open = padding_id is None
        padding_id = 0 if is_open else padding_id
        check_ids(padding_id, bound, "`padding_id`", "padding_id")
        padding_id = prompt_padding_id = int(padding_id)
        rows = ragged_rows(
            inputs.get(self.target) if isinstance(inputs, dict) else inputs
        )
        if is_open and rows is not None:  # they tell their own lengths
            prompt_padding_id = absent_id(rows, bound)
        fillings = {**dict.fromkeys(sizes, padding_id), **masked}
        fillings[self.target] = prompt_padding_id
        self.inputs = _tensors(self.model, inputs, self.target, sizes, fillings)
        prefill = room = 1
        if self.target in self.inputs:
            prompt = self.inputs[self.target]
            room = int(prompt.shape[1])
            if is_open and prompt.shape[0] == 1:  # there is none to be as long as
                prompt_padding_id = absent_id(ops.convert_to_numpy(prompt), bound)
            prefill = shortest_prompt(prompt, self.target, prompt_padding_id)
        elif start_token_id is None:
            raise ValueError(
                "Give `start_token_id`, or a prompt as the input "
                f"'{self.target}'. Received: start_token_id=None"
            )
        else:
            check_ids(start_token_id, bound, "`start_token_id`", "start_token_id")
            start_token_id = int(start_token_id)
        self.rows = int(next(iter(self.inputs.values())).shape[0])
        self.prefix = checked_prefix(
            self.model, prefix, self.rows, constraints, max_length, padding_id
        )
        if not self.rows:  # No backend takes products of nothing in a loop.
            self.inputs = {name: _one_row(x) for name, x in self.inputs.items()}
            self.prefix = None if self.prefix is None else _one_row(self.prefix)
        self.search = Search(
            strategy,
            constraints,
            start_token_id,
            max_length,
            prefill,
            padding_id,
            prompt_padding_id,
        )
        self._room = room + max_length - 1  # positions of prompt and tokens
        self.inputs = continue_inputs(
            self._step(), self.inputs, self._room, prompt_padding_id
        )

    def _step(self):
        def make():
            return step_model(self.model, self._room, self.target)

        return self.keep("step", make, shared=(self._room,))

    def loop(self, transpose_kernels=False):
        """The search as a `DecodingLoop`."""
        return DecodingLoop(self._step(), self.search, transpose_kernels)

    def draws(self):
        """The random numbers of this call."""
        return self.search.strategy.draw(max(self.rows, 1), self.search.max_length)

    def keep(self, name, make, shared=None):
        """What `make()` gave when this was asked for first, of this model as it is.

        Args:
            name: what it is.
            make: a function without arguments.
            shared: what else it depends on, if not on the whole of the search.
        """
        shared = (self.search, self._room) if shared is None else shared
        key = (name, self.target, *shared, frozenset(self.inputs))
        if key not in self._kept.made:
            self._kept.made[key] = make()
        return self._kept.made[key]


class _Kept:
    """What was made for a model with its variables of now."""

    def __init__(self, model):
        self.made = {}
        self.variables = model.variables
        # Read once: to read a model with others in it calls their layers anew.
        self.sizes, self.masked = vocabulary_sizes(model), masked_ids(model)


# model -> `_Kept`; an entry goes when its model goes.
_KEPT = weakref.WeakKeyDictionary()


def _kept(model):
    """What was made for a model as it is now.

    `enable_lora` and `quantize` give layers other variables: what was traced before
    would go on with the old ones.
    """
    kept = _KEPT.get(model)
    if kept is None or [*map(id, kept.variables)] != [*map(id, model.variables)]:
        kept = _KEPT[model] = _Kept(model)
    return kept


def _constraints(model, end_token_id, min_length, banned_token_ids, max_length):
    if end_token_id is None:
        end_token_id = ()
    bound = model.outputs[0].shape[-1]
    end_token_ids, banned_token_ids = np.ravel(end_token_id), np.ravel(banned_token_ids)
    check_ids(end_token_ids, bound, "`end_token_id`", "end_token_id")
    check_ids(banned_token_ids, bound, "`banned_token_ids`", "banned_token_id")
    end_token_ids = tuple(end_token_ids.astype(int).tolist())
    banned_token_ids = tuple(sorted(set(banned_token_ids.astype(int).tolist())))
    if not is_int(min_length) or not 0 <= min_length <= max_length:
        raise ValueError(
            "`min_length` must be an int from 0 to `max_length`. "
            f"Received: {min_length=}, {max_length=}"
        )
    never = {*banned_token_ids, *(end_token_ids if min_length > 1 else ())}
    if len(never) >= bound:
        raise ValueError(
            "`banned_token_ids` must leave a token to choose, and before `min_length` "
            f"one that is no end token. Received: {len(banned_token_ids)} banned of "
            f"{bound} tokens, {min_length=}"
        )
    return Constraints(end_token_ids, int(min_length), banned_token_ids)


def _one_row(empty):
    """A row of ones, which are ids of any vocabulary, for a tensor without rows."""
    return ops.ones((1, *empty.shape[1:]), dtype=empty.dtype)


def _values(name, tensor):
    try:
        return ops.convert_to_numpy(tensor)
    except Exception as error:  # each backend has one of its own for "not yet"
        raise ValueError(
            f"Input '{name}' must have values: generation is called from Python, not "
            "inside a compiled function (`keras_attn.serving` makes graphs). "
            f"Received: {tensor}"
        ) from error


def _used(whole, model, inputs):
    """`inputs` without what only other outputs than the logits need."""
    if whole is model or not isinstance(inputs, dict):
        return inputs
    unused = {t.name for t in whole.inputs} - {t.name for t in model.inputs}
    return {name: value for name, value in inputs.items() if name not in unused}


def _tensors(model, inputs, target, sizes, fillings):
    """`inputs` as a dict of tensors, after a look at names and ids."""
    names = [tensor.name for tensor in model.inputs]
    if not isinstance(inputs, dict):
        inputs = {names[0]: inputs}
    unknown = sorted(set(inputs) - set(names))
    if unknown or not inputs:
        raise ValueError(
            f"`inputs` must be a dict with some of the keys {sorted(names)}. "
            f"Received: inputs with keys {sorted(inputs)}"
        )
    missing = sorted(set(names) - {target} - set(inputs))
    if missing:
        raise ValueError(
            f"`inputs` must hold the model's inputs {missing} as well. "
            f"Received: inputs with keys {sorted(inputs)}"
        )
    tensors = {}
    for tensor in model.inputs:
        if tensor.name not in inputs:
            continue
        values = inputs[tensor.name]
        if values is None:
            raise ValueError(f"Input '{tensor.name}' is missing. Received: None")
        if hasattr(values, "to_tensor"):  # ragged, as tokenizers give
            values = values.to_tensor(fillings.get(tensor.name))
        elif (rows := ragged_rows(values)) is not None:
            values = filled(rows, fillings.get(tensor.name, 0))
        if not hasattr(values, "dtype"):
            values = np.asarray(values)
        dtype = str(getattr(values.dtype, "name", values.dtype))
        is_number = any(kind in dtype for kind in ("int", "float", "bool"))
        if not is_number or ("float" in dtype and "int" in tensor.dtype):
            raise ValueError(
                f"Input '{tensor.name}' must be of dtype {tensor.dtype}. "
                f"Received: dtype={dtype}"
            )
        if len(values.shape) != len(tensor.shape):
            raise ValueError(
                f"Input '{tensor.name}' must be of shape {tuple(tensor.shape)}. "
                f"Received: shape={tuple(values.shape)}"
            )
        if tensor.name in sizes:  # before a cast can make other ids of them
            ids = _values(tensor.name, values)
            what = f"Token ids of input '{tensor.name}'"
            check_ids(ids, sizes[tensor.name], what)
        tensors[tensor.name] = ops.convert_to_tensor(values, dtype=tensor.dtype)
    rows = {name: int(tensor.shape[0]) for name, tensor in tensors.items()}
    if len(set(rows.values())) > 1:
        raise ValueError(f"All inputs must have as many rows. Received: rows={rows}")
    return tensors
