"""The recurrent decoder: stacked GRU or LSTM cells, with or without attention."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
from keras import initializers, ops

from keras_attn._keras_internals import implicit_mask
from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.cached_layer import ContextLayer
from keras_attn.layers._internal.trainable_state import (
    add_trainable_state,
    restore_trainable_state,
)
from keras_attn.layers.attention.attention_layer import (
    AttentionLayer,
    refuse_dependent_context,
)
from keras_attn.layers.recurrent.cells import DecoderCell, check_cell, run_cell
from keras_attn.layers.recurrent.state_bridge import StateBridge

__all__ = ["RecurrentDecoder"]


@keras.saving.register_keras_serializable(package="keras_attn")
class RecurrentDecoder(keras.layers.Layer):
    """Stacked GRU or LSTM cells that generate a sequence and attend to another one.

    After each step the state h of the top cell attends to the outputs of the encoder;
    with the resulting context c the output is `tanh([c; h] W)`. With input feeding the
    next step receives this output in addition to its input, so that it has information
    on past alignments. Without attention the output is h: the initial state is all that
    a step has of the source.

    Padding of the target is skipped: states and the output that is fed do not change.

    Args:
        units: int, width of the cells and of the output.
        num_layers: int, number of stacked cells.
        cell: `"gru"` or `"lstm"`.
        attention: an attention layer of keras_attn called as
            `attention(query, context)`: `AdditiveAttention`, `DotProductAttention`,
            `MultiHeadAttention`, `CrossAttention`; or None.
        input_feeding: bool, whether a step receives the attentional output of the
            previous one. Without it, attention is computed for all steps at once, which
            is faster.
        residual: bool, whether cells after the first add their input to their output.
        dropout: float in [0, 1), dropout rate of the input of each cell; one mask for
            all steps of a call.
        kernel_initializer, recurrent_initializer: initializers of the cells.
        seed: int, seed of the dropout.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for sizes that are not positive ints, an unknown cell, a rate
            outside [0, 1), an attention that is not a layer of keras_attn, or one with
            dropout and input feeding; in a call, for an encoder sequence that is
            missing, or given without an attention.

    Call arguments:
        decoder_sequence: floats `(B, T, D)`.
        encoder_sequence: floats `(B, S, D')` to attend to; None without attention.
        initial_state: floats `(B, X)`, such as the last states of the encoder, from
            which a learned projection makes the state of each cell. None: zeros.
        decoder_padding_mask: bool `(B, T)`, True = a real token. Replaces the implicit
            Keras mask of `decoder_sequence`.
        encoder_padding_mask: bool `(B, S)`, True = a real token. Replaces the implicit
            Keras mask of `encoder_sequence`.
        training: bool, whether dropout is applied.
        return_attention_scores: bool, whether to return the attention weights as well.

    Returns:
        `(B, T, units)`, or a tuple of it and the weights of the attention, `(B, T, S)`
        or `(B, N, T, S)`.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> target, source = keras.Input((None, 32)), keras.Input((None, 32))
        >>> outputs, state = layers.RecurrentEncoder(64)(source)
        >>> decoder = layers.RecurrentDecoder(64, attention=layers.AdditiveAttention())
        >>> decoder(target, outputs, state).shape
        (None, None, 64)

    Reference:
        Luong et al. 2015, sections 3.1 and 3.3 (https://arxiv.org/abs/1508.04025);
        without attention, Sutskever et al. 2014, "Sequence to Sequence Learning with
        Neural Networks" (https://arxiv.org/abs/1409.3215).
    """

    context_arguments = ("encoder_sequence", "initial_state")
    context_masks = ("encoder_padding_mask",)

    def __init__(
        self,
        units: int,
        num_layers: int = 1,
        cell: str = "gru",
        attention: Any = None,
        input_feeding: bool = True,
        *,
        residual: bool = False,
        dropout: float = 0.0,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("bidirectional", False):
            raise ValueError(
                "A decoder generates from the first token to the last and cannot be "
                "bidirectional; an encoder can. Received: bidirectional=True"
            )
        super().__init__(**kwargs)
        self.units = arguments.positive_int("units", units)
        self.num_layers = arguments.positive_int("num_layers", num_layers)
        self.cell = check_cell(cell)
        self.attention: Any = _check_attention(arguments.deserialize(attention))
        self.input_feeding = input_feeding
        self.feeds_attention = self.attention is not None and input_feeding
        if self.attention is not None and input_feeding and self.attention.dropout > 0:
            raise ValueError(
                "With `input_feeding=True` the attention runs inside a loop, where its "
                "dropout is not supported: use the `dropout` of the decoder, or "
                "input_feeding=False. "
                f"Received: an attention with dropout={self.attention.dropout}"
            )
        self.residual = residual
        self.dropout = arguments.rate("dropout", dropout)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed) if dropout > 0 else None
        self.supports_masking = True

    @property
    def has_attention_scores(self) -> bool:
        """Whether the layer has attention weights to return."""
        return self.attention is not None

    def build(
        self,
        decoder_sequence_shape: Shape,
        encoder_sequence_shape: Shape | None = None,
        initial_state_shape: Shape | None = None,
    ) -> None:
        batch, length, width = decoder_sequence_shape
        self._cell = DecoderCell(self, name="cell")
        self._cell.build((batch, width))
        self._bridge = None
        if initial_state_shape is not None:
            # The output that is fed is zero at first.
            count = len(self._cell.state_size) - (1 if self.feeds_attention else 0)
            self._bridge = StateBridge(
                self.units,
                count,
                self.kernel_initializer,
                dtype=self.dtype_policy,
                name="bridge",
            )
            self._bridge.build(initial_state_shape)
        if self.attention is None:
            return
        if encoder_sequence_shape is None:
            raise ValueError(
                f"Layer '{self.name}' has an attention and requires a sequence to "
                "attend to. Received: encoder_sequence=None"
            )
        hidden_shape = (batch, length, self.units)
        if not self.attention.built:
            self.attention.build(hidden_shape, encoder_sequence_shape)
        context_shape = self.attention.compute_output_shape(
            hidden_shape, encoder_sequence_shape
        )
        self._output_dense = keras.layers.Dense(
            self.units,
            activation="tanh",
            use_bias=False,
            kernel_initializer=arguments.clone_initializer(self.kernel_initializer),
            dtype=self.dtype_policy,
            name="attention_output",
        )
        self._output_dense.build((batch, length, context_shape[-1] + self.units))

    def call(
        self,
        decoder_sequence: Tensor,
        encoder_sequence: Tensor | None = None,
        initial_state: Tensor | None = None,
        decoder_padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        self._check_call(encoder_sequence, initial_state, return_attention_scores)
        if encoder_padding_mask is None and encoder_sequence is not None:
            encoder_padding_mask = implicit_mask(encoder_sequence)
        states = self._initial_states(decoder_sequence, initial_state)

        def attend(hidden: Tensor, **options: Any) -> Any:
            return self.attention(
                hidden,
                encoder_sequence,
                padding_mask=encoder_padding_mask,
                training=training,
                **options,
            )

        context: Mapping[str, Tensor] = {}
        if self.feeds_attention:
            context = self._attention_context(encoder_sequence, encoder_padding_mask)
        hidden, output, _ = self._run(
            decoder_sequence, decoder_padding_mask, states, context, training
        )
        if output is None:
            output = self._output(hidden, attend)
        if not return_attention_scores:
            return output
        return output, attend(hidden, return_attention_scores=True)[1]

    def _run(
        self,
        sequence: Tensor,
        padding_mask: Tensor | None,
        states: Sequence[Tensor],
        context: Mapping[str, Tensor],
        training: bool | None = False,
    ) -> tuple[Tensor, Tensor | None, Sequence[Tensor]]:
        """Run the cells over a sequence.

        Returns:
            A tuple of the hidden states `(B, T, units)`, the outputs of the same shape
            (None without input feeding), and the last states.
        """
        if padding_mask is None:
            padding_mask = implicit_mask(sequence)
        if padding_mask is not None:
            padding_mask = ops.cast(padding_mask, "bool")
        outputs, states = run_cell(
            self._cell,
            sequence,
            states,
            padding_mask,
            attend=lambda hidden: self._output(hidden, self._attend_to(context)),
            dropout_masks=self._dropout_masks(sequence) if training else None,
        )
        if not self.feeds_attention:
            return outputs, None, states
        return outputs[..., : self.units], outputs[..., self.units :], states

    def _attend_to(self, context: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        """Return the attention to a context as a function of hidden states."""

        def attend(hidden: Tensor) -> Tensor:
            inputs = {"query": hidden, "projected_context": context}
            return self.attention.cached_call(inputs, {}, 0)[0]

        return attend

    def _attention_context(
        self, encoder_sequence: Tensor, padding_mask: Tensor | None
    ) -> dict[str, Tensor]:
        """Return the projected context of the attention."""
        context = {self.attention.context_arguments[0]: encoder_sequence}
        if padding_mask is not None:
            context[self.attention.context_masks[0]] = padding_mask
        return self.attention.project_context(context)

    def _output(self, hidden: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the output `(B, T, units)` of hidden states."""
        if self.attention is None:
            return hidden
        return self._output_dense(ops.concatenate([attend(hidden), hidden], axis=-1))

    def _dropout_masks(self, sequence: Tensor) -> list[Tensor] | None:
        if not self.dropout:
            return None
        batch = ops.shape(sequence)[0]
        return [
            keras.random.dropout(
                ops.ones((batch, width), dtype=self.compute_dtype),
                self.dropout,
                seed=self.seed_generator,
            )
            for width in self._cell.input_widths
        ]

    def _initial_states(
        self, sequence: Tensor, initial_state: Tensor | None
    ) -> list[Tensor]:
        batch = ops.shape(sequence)[0]
        states = [] if self._bridge is None else self._bridge(initial_state)
        sizes = self._cell.state_size[len(states) :]
        zeros = [ops.zeros((batch, size), dtype=self.compute_dtype) for size in sizes]
        return states + zeros

    def _check_call(
        self, encoder_sequence: Any, initial_state: Any, return_attention_scores: bool
    ) -> None:
        if (encoder_sequence is None) != (self.attention is None):
            has = "has no attention" if self.attention is None else "has an attention"
            received = "None" if encoder_sequence is None else "a tensor"
            raise ValueError(
                f"Layer '{self.name}' {has}: pass `encoder_sequence` if and only if "
                f"the layer has an attention. Received: encoder_sequence={received}"
            )
        if (initial_state is not None) != (self._bridge is not None):
            raise ValueError(
                f"Layer '{self.name}' was built "
                f"{'without' if self._bridge is None else 'with'} an initial state: "
                "pass one in every call or in none. Received: initial_state="
                f"{'None' if initial_state is None else 'a tensor'}"
            )
        if return_attention_scores and self.attention is None:
            raise ValueError(
                f"Layer '{self.name}' has no attention whose weights could be "
                f"returned. Received: {return_attention_scores=}"
            )

    def cache_spec(
        self, batch_size: int, max_length: int, inputs: Collection[str]
    ) -> dict[str, keras.KerasTensor]:
        """Return shapes and dtypes of the states; see `decoding.CachedLayer`."""
        return {
            f"state_{i:02}": keras.KerasTensor((batch_size, size), self.compute_dtype)
            for i, size in enumerate(self._cell.state_size)
        }

    def project_context(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Project the encoder's output and state; see `decoding.ContextLayer`.

        Returns:
            A dict of tensors: the projected context of the attention, and the initial
            states, `"initial_00"` and so on `(B, units)`.
        """
        context: dict[str, Tensor] = {}
        if "encoder_sequence" in inputs:
            context = self._attention_context(
                inputs["encoder_sequence"], inputs.get("encoder_padding_mask")
            )
        if "initial_state" in inputs and self._bridge is not None:
            for i, state in enumerate(self._bridge(inputs["initial_state"])):
                context[f"initial_{i:02}"] = state
        return context

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Apply the layer to new positions; see `decoding.CachedLayer`."""
        names = (*self.context_arguments, *self.context_masks)
        refuse_dependent_context(self, inputs, names)
        context = dict(inputs.get("projected_context", {}))
        states = [cache[name] for name in sorted(cache)]
        for i, name in enumerate(sorted(n for n in context if "initial" in n)):
            states[i] = _initial_or_cached(index, context.pop(name), states[i])
        hidden, output, states = self._run(
            inputs["decoder_sequence"],
            inputs.get("decoder_padding_mask"),
            states,
            context,
        )
        if output is None:
            output = self._output(hidden, self._attend_to(context))
        return output, dict(zip(sorted(cache), states))

    def compute_output_shape(
        self,
        decoder_sequence_shape: Shape,
        encoder_sequence_shape: Shape | None = None,
        initial_state_shape: Shape | None = None,
    ) -> Shape:
        return (*decoder_sequence_shape[:2], self.units)

    def compute_output_spec(
        self,
        decoder_sequence: keras.KerasTensor,
        encoder_sequence: keras.KerasTensor | None = None,
        initial_state: keras.KerasTensor | None = None,
        decoder_padding_mask: Any = None,
        encoder_padding_mask: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        self._check_call(encoder_sequence, initial_state, return_attention_scores)
        shape = (*decoder_sequence.shape[:2], self.units)
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        _, weights = self.attention.compute_output_spec(
            output, encoder_sequence, return_attention_scores=True
        )
        return output, weights

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "num_layers": self.num_layers,
            "cell": self.cell,
            "attention": arguments.serialize(self.attention),
            "input_feeding": self.input_feeding,
            "residual": self.residual,
            "dropout": self.dropout,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": initializers.serialize(self.recurrent_initializer),
            "seed": self.seed,
        }

    def get_build_config(self) -> dict[str, Any] | None:
        return add_trainable_state(self, super().get_build_config())

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config(config)
        restore_trainable_state(self, config)


def _check_attention(attention: Any) -> Any:
    """Return the attention; raise a ValueError if a decoder cannot use it."""
    if attention is None:
        return None
    if not isinstance(attention, AttentionLayer):
        raise ValueError(
            "`attention` must be an attention layer of keras_attn, such as "
            f"`AdditiveAttention()`, or None. Received: attention={attention!r}"
        )
    if not isinstance(attention, ContextLayer):
        raise ValueError(
            "`attention` must attend from one sequence to another. "
            f"Received: attention={attention!r}"
        )
    return attention


def _initial_or_cached(index: Tensor, initial: Tensor, state: Tensor) -> Tensor:
    """Return the initial state at index 0, and the cached state afterwards.

    The beams of a batch element share its initial state; the cache has a state each.
    """
    batch, width = ops.shape(initial)[0], state.shape[-1]
    states = ops.reshape(state, (batch, -1, width))
    chosen = ops.where(ops.equal(index, 0), ops.expand_dims(initial, 1), states)
    return ops.reshape(chosen, ops.shape(state))
