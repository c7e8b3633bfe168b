"""A checked generation request, with the programs that are cached for its model."""

import collections
import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn._graph import functional
from keras_attn._types import Tensor
from keras_attn.decoding.config import GenerationConfig
from keras_attn.decoding.inputs import (
    absent_id,
    checked_prefix,
    dense_tensors,
    extend_aligned_inputs,
    ragged_ids,
    shortest_prompt,
)
from keras_attn.decoding.loop import DecodingLoop, SearchSettings
from keras_attn.decoding.step.model_info import (
    default_padding_id,
    find_target,
    max_positions,
    model_up_to_logits,
    padding_ids,
    vocabulary_sizes,
)
from keras_attn.decoding.step.step_model import StepModel, step_model
from keras_attn.decoding.strategies.logits_processors import (
    TokenConstraints,
    default_banned_token_ids,
)
from keras_attn.ops.static_value import check_ids

__all__ = ["Request"]

# Compiled programs that are kept for a model. Step models are few and stay: each new
# one would add nodes to the layers of the user's model.
_MAX_PROGRAMS = 8


class Request:
    """One call of `generate` or `stream`.

    Args:
        model: the Functional model.
        inputs: its inputs, see `generate`.
        config: a `GenerationConfig`.

    Attributes:
        model: the model up to its logits.
        target: name of the target input.
        inputs: dict of tensors; with one batch element if the batch is empty.
        batch_size: int, the batch size of the inputs, which may be 0.
        prefix: int32 `(B, F)`, -1 instead of padding, or None.
        settings: the `SearchSettings`.

    Raises:
        ValueError: for missing or unknown inputs, ids outside a vocabulary, or a model
            that cannot be decoded step by step.
    """

    def __init__(
        self, model: keras.Model, inputs: Any, config: GenerationConfig
    ) -> None:
        cache = _model_cache(model, config.output)
        self.model: keras.Model = cache.part or model
        self.target: str = find_target(self.model, config.target).name
        self._cache = cache
        strategy = config.get_strategy()
        num_logits: Any = self.model.outputs[0].shape[-1]
        constraints = _constraints(config, model, num_logits)
        inputs = _needed_inputs(model, self.model, inputs)
        num_ids: Any = cache.vocabulary_sizes.get(self.target, num_logits)
        paddings = _Padding(config.padding_id, cache, self.target, num_ids, inputs)
        self.inputs = dense_tensors(
            self.model,
            inputs,
            self.target,
            cache.vocabulary_sizes,
            paddings.by_input,
        )
        prompt = self.inputs.get(self.target)
        start_token_id, prefill_length, prompt_size = config.start_token_id, 1, 1
        if prompt is not None:
            prompt_size = int(prompt.shape[1])
            paddings.assume_no_padding(prompt)
            prefill_length = shortest_prompt(prompt, self.target, paddings.of_prompts)
        elif start_token_id is None:
            raise ValueError(
                "Pass `start_token_id`, or a prompt as the input "
                f"'{self.target}'. Received: start_token_id=None"
            )
        else:
            check_ids(start_token_id, num_ids, "`start_token_id`", "start_token_id")
            start_token_id = int(start_token_id)
        self.batch_size: int = int(next(iter(self.inputs.values())).shape[0])
        self.prefix = checked_prefix(
            num_logits,
            config.prefix,
            self.batch_size,
            constraints,
            config.max_new_tokens,
            paddings.of_results,
        )
        if not self.batch_size:
            # Matrix products of an empty batch fail in a compiled loop: decode one
            # batch element and drop its result.
            self.inputs = {name: _one_element(x) for name, x in self.inputs.items()}
            self.prefix = None if self.prefix is None else _one_element(self.prefix)
        self.settings: SearchSettings = SearchSettings(
            strategy,
            constraints,
            start_token_id,
            int(config.max_new_tokens),
            prefill_length,
            paddings.of_results,
            paddings.of_prompts,
        )
        # The last token is not read by the model.
        self._num_positions = prompt_size + self.settings.max_new_tokens - 1
        _check_positions(self._num_positions, cache.max_positions, config)
        self.inputs: dict[str, Tensor] = extend_aligned_inputs(
            self._step_model(), self.inputs, self._num_positions, paddings.of_prompts
        )

    def _step_model(self) -> StepModel:
        size = _next_size(self._num_positions, self._cache.max_positions)
        key = (self.target, size, frozenset(self.inputs))
        step_models = self._cache.step_models
        if key not in step_models:
            step_models[key] = step_model(self.model, size, self.target)
        return step_models[key]

    def loop(self, transpose_weights: bool = False) -> DecodingLoop:
        """Return the search as a `DecodingLoop`."""
        return DecodingLoop(self._step_model(), self.settings, transpose_weights)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs and of the prefix."""
        tensors = {**self.inputs, "prefix": self.prefix}
        return {n: tuple(x.shape) for n, x in tensors.items() if x is not None}

    def draws(self) -> Tensor | None:
        """Return the random numbers of this request."""
        batch_size = max(self.batch_size, 1)
        return self.settings.strategy.draw(batch_size, self.settings.max_new_tokens)

    def cached(self, name: str, make: Callable[[], Any]) -> Any:
        """Return `make()`, or its value for an earlier request on the same model.

        Args:
            name: name of the value, which depends on the settings of the search.
            make: a function without arguments.
        """
        strategy = self.settings.strategy.without_seed()
        settings = dataclasses.replace(self.settings, strategy=strategy)
        key = (
            name,
            self.target,
            settings,
            self._step_model().max_length,
            frozenset(self.inputs),
        )
        programs = self._cache.programs
        if key not in programs:
            programs[key] = make()
        programs.move_to_end(key)
        while len(programs) > _MAX_PROGRAMS:
            programs.popitem(last=False)  # the least recently used one
            gc.collect()  # TensorFlow's functions are reference cycles.
        return programs[key]


class _Padding:
    """The padding ids of a request.

    Args:
        padding_id: the id of the configuration, or None.
        cache: the `_ModelCache`.
        target: name of the target input.
        num_ids: int, number of token ids of the target.
        inputs: the inputs of the request, as the user gives them.

    Attributes:
        of_results: id of padding in results and prefixes.
        of_prompts: id of padding in prompts.
        by_input: id with which ragged values are padded, by input name.
    """

    def __init__(
        self,
        padding_id: int | None,
        cache: "_ModelCache",
        target: str,
        num_ids: int,
        inputs: Any,
    ) -> None:
        if padding_id is None:
            padding_id = default_padding_id(cache.padding_ids, target, num_ids)
        self._num_ids = num_ids
        self._is_unknown = padding_id is None
        padding_id = 0 if padding_id is None else padding_id
        check_ids(padding_id, num_ids, "`padding_id`", "padding_id")
        self.of_results = self.of_prompts = int(padding_id)
        prompts = inputs.get(target) if isinstance(inputs, dict) else inputs
        rows = ragged_ids(prompts)
        if self._is_unknown and rows is not None:  # Their lengths are known.
            self.of_prompts = absent_id(rows, num_ids)
        self.by_input = {
            **dict.fromkeys(cache.vocabulary_sizes, self.of_results),
            **cache.padding_ids,
            target: self.of_prompts,
        }

    def assume_no_padding(self, prompt: Tensor) -> None:
        """Set `of_prompts` to an id that the prompt does not contain.

        It has no effect if the padding id is known or there are several prompts.
        """
        if self._is_unknown and prompt.shape[0] == 1:
            self.of_prompts = absent_id(ops.convert_to_numpy(prompt), self._num_ids)


class _ModelCache:
    """The values that are derived from a model with its current variables.

    It holds no reference to the model itself, so that both can be freed.
    """

    def __init__(self, model: keras.Model, output: str | None) -> None:
        functional.check_functional(model)
        part = model_up_to_logits(model, output)
        self.part = None if part is model else part
        self.variables = part.variables
        self.step_models: dict[Any, StepModel] = {}
        self.programs: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        # Read once: flattening nested models calls their layers again.
        self.vocabulary_sizes = vocabulary_sizes(part)
        self.padding_ids = padding_ids(part)
        self.max_positions = max_positions(functional.read_graph(part).calls)

    def is_current(self, model: keras.Model) -> bool:
        """Return whether the variables of the model are still the same objects."""
        variables = (self.part or model).variables
        return [*map(id, self.variables)] == [*map(id, variables)]


# model -> {name of the output: its cache}; an entry is dropped with its model.
_CACHES: "weakref.WeakKeyDictionary[keras.Model, dict[str | None, _ModelCache]]" = (
    weakref.WeakKeyDictionary()
)


def _model_cache(model: keras.Model, output: str | None) -> _ModelCache:
    """Return the cache of a model.

    `enable_lora` and `quantize` replace variables: programs that were traced before
    would use the old ones, so that the cache starts again.
    """
    caches = _CACHES.get(model) if isinstance(model, keras.Model) else None
    cache = None if caches is None else caches.get(output)
    if cache is None or not cache.is_current(model):
        cache = _ModelCache(model, output)
        _CACHES.setdefault(model, {})[output] = cache
    return cache


def _next_size(num_positions: int, limit: int | None) -> int:
    """Return the next larger of the sizes 16, 24, 32, 48, 64, ..., up to `limit`."""
    size = 16
    while size < num_positions:
        is_power_of_two = size & (size - 1) == 0
        size = size * 3 // 2 if is_power_of_two else size * 4 // 3
    return size if limit is None else max(num_positions, min(size, limit))


def _check_positions(
    num_positions: int, limit: int | None, config: GenerationConfig
) -> None:
    """Raise a ValueError if there are more positions than learned ones."""
    if limit is not None and num_positions > limit:
        raise ValueError(
            "The prompt and the new tokens must fit into the "
            f"{limit} learned positions of the model, and take {num_positions}; use a "
            "shorter prompt or a smaller `max_new_tokens`. "
            f"Received: max_new_tokens={config.max_new_tokens}"
        )


def _constraints(
    config: GenerationConfig, model: keras.Model, num_logits: int
) -> TokenConstraints:
    """Return the constraints of a configuration; raise a ValueError for wrong ids."""
    banned_token_ids: Any = config.banned_token_ids
    if banned_token_ids is None:
        banned_token_ids = default_banned_token_ids(model)
    end_token_id = () if config.end_token_id is None else config.end_token_id
    end_token_ids = np.ravel(end_token_id)
    banned_token_ids = np.ravel(banned_token_ids)
    check_ids(end_token_ids, num_logits, "`end_token_id`", "end_token_id")
    check_ids(banned_token_ids, num_logits, "`banned_token_ids`", "banned_token_id")
    end_token_ids = tuple(end_token_ids.astype(int).tolist())
    banned_token_ids = tuple(sorted(set(banned_token_ids.astype(int).tolist())))
    min_new_tokens = int(config.min_new_tokens)
    forbidden = {*banned_token_ids, *(end_token_ids if min_new_tokens > 0 else ())}
    if len(forbidden) >= num_logits:
        raise ValueError(
            "`banned_token_ids` must leave at least one token that may be generated; "
            "with `min_new_tokens` > 0 it must not be an end token. Received: "
            f"{len(banned_token_ids)=}, vocabulary_size={num_logits}, "
            f"{min_new_tokens=}"
        )
    return TokenConstraints(end_token_ids, min_new_tokens, banned_token_ids)


def _one_element(empty: Tensor) -> Tensor:
    """Return one batch element of ones, which are ids of any vocabulary."""
    return ops.ones((1, *empty.shape[1:]), dtype=empty.dtype)


def _needed_inputs(whole: keras.Model, model: keras.Model, inputs: Any) -> Any:
    """Return `inputs` without those that only outputs other than the logits need."""
    if whole is model or not isinstance(inputs, dict):
        return inputs
    unused = {t.name for t in whole.inputs} - {t.name for t in model.inputs}
    return {name: value for name, value in inputs.items() if name not in unused}
