"""The alignment of generated tokens with source tokens, from cross-attention."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_attn._graph import functional
from keras_attn._graph.attention_probe import probe_attention
from keras_attn._types import Tensor
from keras_attn.decoding.loop import prompt_lengths
from keras_attn.layers._internal.cached_layer import ContextLayer

__all__ = ["TokenAlignment"]


class TokenAlignment:
    """The cross-attention weights of generated tokens, as a pure function of tensors.

    The whole model is applied to the generated sequences. The weights are those of the
    last cross-attention of the graph, averaged over its heads.

    Args:
        model: a Functional model.
        target: name of its target input.
        start_token_id: int, the prompt if there is none.
        padding_id: int, id of padding in prompts.

    Raises:
        ValueError: if the model has no cross-attention.
    """

    def __init__(
        self,
        model: keras.Model,
        target: str,
        start_token_id: int | None,
        padding_id: int = 0,
    ) -> None:
        self.target = target
        self.start_token_id = start_token_id
        self.padding_id = padding_id
        self.input_names: list[str] = [tensor.name for tensor in model.inputs]
        try:
            probe = probe_attention(model)
        except ValueError as error:
            raise ValueError(
                f"`return_alignment` requires attention weights: {error}"
            ) from error
        targets = [tensor for tensor in model.inputs if tensor.name == target]
        dependent = functional.descendants(functional.read_graph(model).calls, targets)
        names = [
            name
            for name, call in probe.calls.items()
            if _is_cross_attention(name, call, dependent)
        ]
        if not names:
            raise ValueError(
                "`return_alignment` requires a cross-attention layer of keras_attn "
                "from the target to a context. Received: a model with the attention "
                f"layers {sorted(probe.calls)}"
            )
        weights = probe.model.output[names[-1]]
        self.weights: keras.Model = keras.Model(probe.model.inputs, weights)

    def __call__(
        self, inputs: Mapping[str, Tensor], results: Mapping[str, Tensor]
    ) -> Tensor:
        """Return the attention weights of generated tokens, `(B, R, L, S)`.

        Args:
            inputs: dict of the model's inputs, with or without the prompt.
            results: the results of the search, see `keras_attn.decoding.generate`.
        """
        token_ids, lengths = results["token_ids"], results["lengths"]
        batch_size, hypotheses, length = ops.shape(token_ids)
        total = batch_size * hypotheses
        prompt = inputs.get(self.target)
        if prompt is None:
            prompt = ops.full((batch_size, 1), self.start_token_id, dtype="int32")
        repeated = {
            name: ops.repeat(tensor, hypotheses, axis=0)
            for name, tensor in {**inputs, self.target: prompt}.items()
        }
        generated = ops.reshape(token_ids, (total, length))
        num_prompt_tokens = prompt_lengths(repeated[self.target], self.padding_id)
        target = _concatenate(repeated[self.target], num_prompt_tokens, generated)
        tensors = [{**repeated, self.target: target}[name] for name in self.input_names]
        weights = ops.mean(self.weights(tensors, training=False), axis=1)
        # A token is predicted at the position before it.
        positions = ops.expand_dims(num_prompt_tokens - 1, 1) + ops.arange(
            length, dtype="int32"
        )
        weights = ops.take_along_axis(weights, ops.expand_dims(positions, -1), axis=1)
        is_token = ops.arange(length, dtype="int32") < ops.reshape(lengths, (-1, 1))
        weights = ops.where(ops.expand_dims(is_token, -1), weights, 0.0)
        shape = (batch_size, hypotheses, length, ops.shape(weights)[-1])
        return ops.reshape(weights, shape)


def _concatenate(prompt: Tensor, num_tokens: Tensor, generated: Tensor) -> Tensor:
    """Concatenate prompts of `num_tokens` tokens and generated tokens but the last."""
    prompt_size, length = ops.shape(prompt)[1], ops.shape(generated)[1]
    positions = ops.arange(prompt_size + length - 1, dtype="int32")[None]
    count = positions - num_tokens[:, None]
    from_prompt = ops.take(prompt, ops.clip(positions[0], 0, prompt_size - 1), axis=1)
    from_generated = ops.take_along_axis(generated, ops.clip(count, 0, length - 1), 1)
    return ops.where(count < 0, from_prompt, from_generated)


def _is_cross_attention(name: str, call: functional.Call, dependent: set[int]) -> bool:
    """Return whether a call attends from the target to a context."""
    operation: Any = call.operation
    if not isinstance(operation, ContextLayer):
        return False
    arguments = call.arguments()
    contexts = [
        tensor
        for argument in operation.context_arguments
        for tensor in functional.tensors_in(arguments.get(argument))
    ]
    if not contexts or any(id(tensor) in dependent for tensor in contexts):
        return False
    if not any(id(tensor) in dependent for tensor in call.outputs):
        return False
    return "/" not in name or name.endswith("/cross_attention")
