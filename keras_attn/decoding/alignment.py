"""Which source tokens a generated token was made from, by cross-attention."""

import keras
from keras import ops

from keras_attn._graph import functional
from keras_attn._graph.attention_probe import probe
from keras_attn.decoding.loop import prompt_lengths

__all__ = ["TokenAlignment"]


class TokenAlignment:
    """The cross-attention of generated tokens, as a pure function of tensors.

    The whole model is run once more over what was found. The weights are those of the
    last cross-attention of the graph, the mean of its heads.

    Args:
        model: a Functional model.
        target: the name of its input that grows.
        start_token_id: int, the prompt of rows that come without one.
        padding_id: int, what prompts are padded with.

    Raises:
        ValueError: if the model has no cross-attention.
    """

    def __init__(self, model, target, start_token_id, padding_id=0):
        self.target = target
        self.start_token_id = start_token_id
        self.padding_id = padding_id
        self.input_names = [tensor.name for tensor in model.inputs]
        try:
            probed = probe(model)
        except ValueError as error:
            raise ValueError(f"`return_alignment` asks for weights: {error}") from error
        grown = [tensor for tensor in model.inputs if tensor.name == target]
        moving = functional.dependents(functional.read(model).calls, grown)
        names = [
            name
            for name, call in probed.calls.items()
            if _is_cross_attention(name, call, moving)
        ]
        if not names:
            raise ValueError(
                "`return_alignment` needs a cross-attention layer of keras_attn, from "
                "the target to what does not depend on it. Received: a model with the "
                "attentions "
                f"{sorted(probed.calls)}"
            )
        weights = probed.model.output[names[-1]]
        self.weights = keras.Model(probed.model.inputs, weights)

    def __call__(self, inputs, found):
        """Alignment weights, `(B, R, L, S)`.

        Args:
            inputs: dict of the model's inputs, the prompt among them or not.
            found: what the search found; see `keras_attn.decoding.generate`.
        """
        token_ids, lengths = found["token_ids"], found["lengths"]
        rows, hypotheses, length = ops.shape(token_ids)
        times = rows * hypotheses
        prompt = inputs.get(self.target)
        if prompt is None:
            prompt = ops.full((rows, 1), self.start_token_id, dtype="int32")
        given = {
            name: ops.repeat(tensor, hypotheses, axis=0)
            for name, tensor in {**inputs, self.target: prompt}.items()
        }
        generated = ops.reshape(token_ids, (times, length))
        before = prompt_lengths(given[self.target], self.padding_id)
        target = _joined(given[self.target], before, generated)
        tensors = [{**given, self.target: target}[name] for name in self.input_names]
        weights = ops.mean(self.weights(tensors, training=False), axis=1)
        # What a token was made from is seen at the position before it.
        place = ops.expand_dims(before - 1, 1) + ops.arange(length, dtype="int32")
        weights = ops.take_along_axis(weights, ops.expand_dims(place, -1), axis=1)
        keep = ops.arange(length, dtype="int32") < ops.reshape(lengths, (-1, 1))
        weights = ops.where(ops.expand_dims(keep, -1), weights, 0.0)
        return ops.reshape(weights, (rows, hypotheses, length, ops.shape(weights)[-1]))


def _joined(prompt, before, generated):
    """Prompts, `before` tokens each, with what followed, but for the last token."""
    room, length = ops.shape(prompt)[1], ops.shape(generated)[1]
    place = ops.arange(room + length - 1, dtype="int32")[None]
    count = place - before[:, None]
    of_prompt = ops.take(prompt, ops.clip(place[0], 0, room - 1), axis=1)
    of_generated = ops.take_along_axis(generated, ops.clip(count, 0, length - 1), 1)
    return ops.where(count < 0, of_prompt, of_generated)


def _is_cross_attention(name, call, moving):
    operation, arguments = call.operation, call.arguments()
    contexts = [
        tensor
        for argument in getattr(operation, "context_arguments", ())
        for tensor in functional.tensors_in(arguments.get(argument))
    ]
    if not contexts or any(id(tensor) in moving for tensor in contexts):
        return False
    if not any(id(tensor) in moving for tensor in call.outputs):
        return False
    return "/" not in name or name.endswith("/cross_attention")
