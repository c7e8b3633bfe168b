"""The recurrent decoder: stacked GRU or LSTM cells, with attention or without."""

import keras
from keras import initializers, ops

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.trainable_state import KeepsTraining
from keras_attn.layers.attention.attention_base import AttentionBase
from keras_attn.layers.recurrent.cells import check_cell
from keras_attn.layers.recurrent.decoder_cell import DecoderRun
from keras_attn.layers.recurrent.state_bridge import StateBridge

__all__ = ["RecurrentDecoder"]


@keras.saving.register_keras_serializable(package="keras_attn")
class RecurrentDecoder(KeepsTraining, keras.layers.Layer):
    """Stacked GRU or LSTM cells that write a sequence, looking back at another.

    After each step the top cell's state h attends to the encoder's outputs; from the
    context c it finds, the output is `tanh([c; h] W)`. With input feeding the next
    step gets that beside its own input, so that it knows what has been looked at.
    Without attention the output is h: all a step knows of the source has come with
    the initial state.

    Padding of the target is skipped: states, and what is fed, go on as they were.

    Args:
        units: int, width of the cells and of the output.
        num_layers: int, number of cells on one another.
        cell: `"gru"` or `"lstm"`.
        attention: one of this library's layers called as
            `attention(query, context)`: `AdditiveAttention`, `DotProductAttention`,
            `MultiHeadAttention`, `CrossAttention`; or None.
        input_feeding: bool, whether a step is told what the last one attended to.
            Without it, attention is computed for all steps at once, which is faster.
        residual: bool, whether cells after the first add their input to their output.
        dropout: float in [0, 1), of the input of each cell; one draw for all steps of
            a call.
        kernel_initializer, recurrent_initializer: initializers of the cells.
        seed: int, seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for sizes that are not positive ints, another cell, a rate outside
            [0, 1), an attention that is not ours, or one that drops weights where it
            is fed; in a call, where there is no encoder sequence to attend to, or a
            sequence that no attention looks at.

    Call arguments:
        decoder_sequence: `(B, T, D)` floats.
        encoder_sequence: `(B, S, D')` floats to attend to; None without attention.
        initial_state: `(B, X)` floats, such as the encoder's last states, from which
            a learned projection makes the state of each cell. None: zeros.
        decoder_padding_mask: bool `(B, T)`, True = a real token; takes the place of
            the implicit Keras mask of `decoder_sequence`.
        encoder_padding_mask: bool `(B, S)`, likewise of `encoder_sequence`.
        training: bool, whether dropout is on.
        return_attention_scores: bool, whether to return the weights as well.

    Returns:
        `(B, T, units)`, or a pair of it and the weights as the attention gives them,
        `(B, T, S)` or `(B, N, T, S)`.

    Example:
        >>> target, source = keras.Input((None, 32)), keras.Input((None, 32))
        >>> outputs, state = RecurrentEncoder(64)(source)
        >>> RecurrentDecoder(64, attention=AdditiveAttention())(
        ...     target, outputs, state).shape
        (None, None, 64)

    Reference:
        Luong et al. 2015, sections 3.1 and 3.3 (https://arxiv.org/abs/1508.04025);
        without attention, Sutskever et al. 2014, "Sequence to Sequence Learning with
        Neural Networks" (https://arxiv.org/abs/1409.3215).
    """

    context_arguments = ("encoder_sequence", "initial_state")
    context_mask_argument = "encoder_padding_mask"

    def __init__(
        self,
        units,
        num_layers=1,
        cell="gru",
        attention=None,
        input_feeding=True,
        residual=False,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        seed=None,
        **kwargs,
    ):
        if kwargs.pop("bidirectional", False):
            raise ValueError(
                "A decoder writes from the first token to the last and cannot be "
                "bidirectional; an encoder can. Received: bidirectional=True"
            )
        super().__init__(**kwargs)
        self.units = arguments.positive_int("units", units)
        self.num_layers = arguments.positive_int("num_layers", num_layers)
        self.cell = check_cell(cell)
        self.attention = arguments.deserialize(attention)
        if not isinstance(self.attention, (AttentionBase, type(None))):
            raise ValueError(
                "`attention` must be an attention layer of keras_attn, such as "
                f"`AdditiveAttention()`, or None. Received: attention={attention!r}"
            )
        if not hasattr(self.attention, "project_context") and attention is not None:
            raise ValueError(
                "`attention` must attend from one sequence to another. "
                f"Received: attention={attention!r}"
            )
        self.input_feeding = input_feeding
        self.feeds = self.attention is not None and input_feeding
        if self.feeds and self.attention.dropout > 0:
            raise ValueError(
                "With `input_feeding` the attention runs inside a loop, where its "
                "dropout cannot: use the decoder's `dropout`, or input_feeding=False. "
                f"Received: an attention with dropout={self.attention.dropout}"
            )
        self.residual = residual
        self.dropout = arguments.rate("dropout", dropout)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.seed = seed
        if dropout > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True

    @property
    def has_attention_scores(self):
        """Whether there are weights to return."""
        return self.attention is not None

    def build(
        self,
        decoder_sequence_shape,
        encoder_sequence_shape=None,
        initial_state_shape=None,
    ):
        batch, length, _ = decoder_sequence_shape
        self._run = DecoderRun(self, name="run")
        self._run.build(decoder_sequence_shape)
        self._has_initial_state = initial_state_shape is not None
        if self._has_initial_state:
            # What is fed is nothing at first.
            count = len(self._run.cell.state_size) - (1 if self.feeds else 0)
            self._bridge = StateBridge(
                self.units,
                count,
                self.kernel_initializer,
                dtype=self.dtype_policy,
                name="bridge",
            )
            self._bridge.build(initial_state_shape)
        if self.attention is not None:
            if encoder_sequence_shape is None:
                raise ValueError(
                    f"Layer '{self.name}' has an attention and needs a sequence to "
                    "attend to. Received: encoder_sequence=None"
                )
            hidden = (batch, length, self.units)
            if not self.attention.built:
                self.attention.build(hidden, encoder_sequence_shape)
            found = self.attention.compute_output_shape(hidden, encoder_sequence_shape)
            self._output_dense = keras.layers.Dense(
                self.units,
                activation="tanh",
                use_bias=False,
                kernel_initializer=arguments.clone_initializer(self.kernel_initializer),
                dtype=self.dtype_policy,
                name="attention_output",
            )
            self._output_dense.build((batch, length, found[-1] + self.units))

    def call(
        self,
        decoder_sequence,
        encoder_sequence=None,
        initial_state=None,
        decoder_padding_mask=None,
        encoder_padding_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        self._check_call(encoder_sequence, initial_state, return_attention_scores)
        if encoder_padding_mask is None and encoder_sequence is not None:
            encoder_padding_mask = implicit_mask(encoder_sequence)
        states = self._initial_states(decoder_sequence, initial_state)

        def look(hidden, **options):
            return self.attention(
                hidden,
                encoder_sequence,
                padding_mask=encoder_padding_mask,
                training=training,
                **options,
            )

        context = None
        if self.feeds:
            context = self.attention.project_context(
                encoder_sequence, padding_mask=encoder_padding_mask
            )
        hidden, attended, _ = self._steps(
            decoder_sequence, decoder_padding_mask, states, context, training
        )
        if attended is None:
            attended = self._output(hidden, look)
        if not return_attention_scores:
            return attended
        return attended, look(hidden, return_attention_scores=True)[1]

    def _steps(self, sequence, padding_mask, states, context, training=False):
        """Runs the cells.

        Returns:
            A triple: the hidden states `(B, T, units)`, what was attended to, or None
            where nothing was fed, and the states after the last step.
        """
        if padding_mask is None:
            padding_mask = implicit_mask(sequence)
        if padding_mask is not None:
            padding_mask = ops.cast(padding_mask, "bool")
        outputs, *states = self._run.steps(
            sequence,
            states,
            padding_mask,
            attend=lambda hidden: self._output(hidden, self._look_at(context)),
            drops=self._drops(ops.shape(sequence)[0]) if training else None,
        )
        if not self.feeds:
            return outputs, None, states
        return outputs[..., : self.units], outputs[..., self.units :], states

    def _look_at(self, context):
        """The attention as a function of hidden states, to a projected context."""

        def look(hidden):
            return self.attention.cached_call(
                hidden, cache={}, index=0, context=context
            )[0]

        return look

    def _output(self, hidden, look):
        """`(B, T, units)` from the hidden states and what `look` finds for them."""
        if self.attention is None:
            return hidden
        return self._output_dense(ops.concatenate([look(hidden), hidden], axis=-1))

    def _drops(self, rows):
        if not self.dropout:
            return None
        return [
            keras.random.dropout(
                ops.ones((rows, width), dtype=self.compute_dtype),
                self.dropout,
                seed=self.seed_generator,
            )
            for width in self._run.cell.input_widths
        ]

    def _initial_states(self, sequence, initial_state):
        rows = ops.shape(sequence)[0]
        states = self._bridge(initial_state) if self._has_initial_state else []
        sizes = self._run.cell.state_size[len(states) :]
        zeros = [ops.zeros((rows, size), dtype=self.compute_dtype) for size in sizes]
        return states + zeros

    def _check_call(self, encoder_sequence, initial_state, return_attention_scores):
        if (encoder_sequence is None) != (self.attention is None):
            has = "has no attention" if self.attention is None else "has an attention"
            given = "None" if encoder_sequence is None else "a tensor"
            raise ValueError(
                f"Layer '{self.name}' {has}: it takes an encoder sequence where it has "
                f"one, and none where it has not. Received: encoder_sequence={given}"
            )
        if (initial_state is not None) != self._has_initial_state:
            raise ValueError(
                f"Layer '{self.name}' was built "
                f"{'with' if self._has_initial_state else 'without'} an initial state: "
                "give one in every call or in none. Received: initial_state="
                f"{'None' if initial_state is None else 'a tensor'}"
            )
        if return_attention_scores and self.attention is None:
            raise ValueError(
                f"Layer '{self.name}' has no attention whose scores could be returned. "
                f"Received: {return_attention_scores=}"
            )

    # Decoding step by step

    def cache_spec(self, batch_size, max_length, has_context=False):
        """The states of the cells, and what was fed."""
        return {
            f"state_{i:02}": keras.KerasTensor((batch_size, size), self.compute_dtype)
            for i, size in enumerate(self._run.cell.state_size)
        }

    def project_context(
        self, encoder_sequence=None, initial_state=None, padding_mask=None
    ):
        """What steps need of the encoder, computed once.

        Args:
            encoder_sequence, initial_state: as in `call`.
            padding_mask: of the encoder sequence.

        Returns:
            A dict of tensors: what the attention's `project_context` gives, and
            `"initial_00"` and so on `(B, units)`.
        """
        context = {}
        if encoder_sequence is not None:
            context = self.attention.project_context(
                encoder_sequence, padding_mask=padding_mask
            )
        if initial_state is not None:
            for i, state in enumerate(self._bridge(initial_state)):
                context[f"initial_{i:02}"] = state
        return context

    def cached_call(
        self, decoder_sequence, decoder_padding_mask=None, *, cache, index, context=None
    ):
        """One decoding step, see `MultiHeadAttention.cached_call`."""
        context = dict(context or {})
        states = [cache[name] for name in sorted(cache)]
        for i, name in enumerate(sorted(n for n in context if "initial" in n)):
            states[i] = _first(index, context.pop(name), states[i])
        hidden, attended, states = self._steps(
            decoder_sequence, decoder_padding_mask, states, context
        )
        if attended is None:
            attended = self._output(hidden, self._look_at(context))
        return attended, dict(zip(sorted(cache), states))

    def compute_output_shape(
        self,
        decoder_sequence_shape,
        encoder_sequence_shape=None,
        initial_state_shape=None,
    ):
        return (*decoder_sequence_shape[:2], self.units)

    def compute_output_spec(
        self,
        decoder_sequence,
        encoder_sequence=None,
        initial_state=None,
        decoder_padding_mask=None,
        encoder_padding_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        self._check_call(encoder_sequence, initial_state, return_attention_scores)
        shape = (*decoder_sequence.shape[:2], self.units)
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        _, scores = self.attention.compute_output_spec(
            output, encoder_sequence, return_attention_scores=True
        )
        return output, scores

    def get_config(self):
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


def _first(index, initial, state):
    """The initial states at index 0, those of a cache after it.

    Hypotheses of one row share its initial state; a cache has a row for each.
    """
    rows, width = ops.shape(initial)[0], state.shape[-1]
    states = ops.reshape(state, (rows, -1, width))
    chosen = ops.where(ops.equal(index, 0), ops.expand_dims(initial, 1), states)
    return ops.reshape(chosen, ops.shape(state))
