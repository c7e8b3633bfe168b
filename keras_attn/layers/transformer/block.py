"""What the encoder and the decoder block share: arguments, parts, the way through."""

import contextlib

import keras
from keras import activations, initializers

from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.normalization import check_normalization
from keras_attn.layers._internal.trainable_state import KeepsTraining
from keras_attn.layers.transformer.deep_norm import scaled, values_scaled
from keras_attn.layers.transformer.feed_forward import FeedForward
from keras_attn.layers.transformer.residual import Residual

__all__ = ["TransformerBlock", "of_segments"]


class TransformerBlock(KeepsTraining, keras.layers.Layer):
    """Base of `TransformerEncoder` and `TransformerDecoder`, which document it."""

    def __init__(
        self,
        intermediate_dim,
        num_heads,
        dropout=0,
        activation="relu",
        layer_norm_epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        normalize_first=False,
        *,
        attention=None,
        feed_forward=None,
        normalization="layer_norm",
        use_bias=True,
        gated=False,
        parallel=False,
        sandwich_norm=False,
        layer_scale=None,
        residual_scale=1.0,
        branch_gain=1.0,
        stochastic_depth=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = arguments.positive_int(
            "intermediate_dim", intermediate_dim
        )
        self.num_heads = arguments.positive_int("num_heads", num_heads)
        self.dropout = arguments.rate("dropout", dropout)
        self.activation = activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.normalize_first = normalize_first
        # In a function, since as an attribute Keras would track this layer, which is
        # a pattern to copy and has no weights.
        normalization = check_normalization("normalization", normalization)
        self._normalization = lambda: normalization
        self.attention = arguments.part("attention", attention)
        self.feed_forward = arguments.part("feed_forward", feed_forward)
        self.use_bias = arguments.boolean("use_bias", use_bias)
        self.gated = arguments.boolean("gated", gated)
        self.parallel = arguments.boolean("parallel", parallel)
        self.sandwich_norm = arguments.boolean("sandwich_norm", sandwich_norm)
        self.layer_scale = layer_scale
        if layer_scale is not None:
            number = arguments.number("layer_scale", layer_scale, what="a number")
            self.layer_scale = float(number)
        self.residual_scale = _positive("residual_scale", residual_scale)
        self.branch_gain = _positive("branch_gain", branch_gain)
        self.stochastic_depth = arguments.rate("stochastic_depth", stochastic_depth)
        self._check_combination()
        self.supports_masking = True

    def _check_combination(self):
        if self.gated and self.feed_forward is not None:
            raise ValueError(
                "`gated` is of the block's own feed-forward: give it to the layer that "
                "is given as `feed_forward`, or leave that out. "
                f"Received: gated=True, feed_forward={self.feed_forward}"
            )
        for name in ("parallel", "sandwich_norm"):
            if getattr(self, name) and not self.normalize_first:
                raise ValueError(
                    f"`{name}` needs `normalize_first=True`. "
                    f"Received: {name}=True, normalize_first={self.normalize_first}"
                )

    @property
    def normalization(self):
        return self._normalization()

    # Parts. One that several blocks share is built already.

    def _build_attention(self, name, given, layer_class, *shapes):
        """Makes an attention, `_<name>_layer`, and the residual connection around."""
        layer, context = given, contextlib.nullcontext()
        if layer is None:
            layer = layer_class(self.num_heads, dropout=self.dropout, **self._own(name))
            if self.branch_gain != 1:
                context = values_scaled(layer, self.branch_gain)
        if not layer.built:
            with context:
                layer.build(*shapes)
        setattr(self, f"_{name}_layer", layer)
        self._build_residual(name, shapes[0])

    def _build_residual(self, name, shape):
        setattr(self, f"_{name}_residual", Residual(self, name, shape))

    def _build_feed_forward(self, shape):
        layer = self.feed_forward
        if layer is None:
            own = self._own("feed_forward")
            if self.branch_gain != 1:
                own["kernel_initializer"] = scaled(
                    own["kernel_initializer"], self.branch_gain
                )
            layer = FeedForward(
                self.intermediate_dim,
                activation=self.activation,
                gated=self.gated,
                **own,
            )
        if not layer.built:
            layer.build(shape)
        self._feedforward = layer

    def _own(self, name):
        """Arguments of the block's own attention and feed-forward layers."""
        return {
            "use_bias": self.use_bias,
            "kernel_initializer": arguments.clone_initializer(self.kernel_initializer),
            "bias_initializer": arguments.clone_initializer(self.bias_initializer),
            "dtype": self.dtype_policy,
            "name": name,
        }

    def _through(self, x, attentions, training=None):
        """The block around its attentions: one path, cached or not.

        Args:
            x: `(B, T, D)`.
            attentions: dict from the name of an attention to a callable, from a tensor
                like `x` to a pair of a tensor like `x` and anything else.
            training: bool, whether dropout is on.

        Returns:
            A pair of the output and a dict of what the attentions told.
        """

        def beside(attend):
            def both(x):
                output, told = attend(x)
                return output + self._feedforward(x, training=training), told

            return both

        told = {}
        for name, attend in attentions.items():
            residual = getattr(self, f"_{name}_residual")
            branch = beside(attend) if self.parallel else attend
            x, told[name] = residual(x, branch, training)
        if not self.parallel:
            x, _ = self._feedforward_residual(
                x, lambda x: (self._feedforward(x, training=training), None), training
            )
        return x, told

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "activation": activations.serialize(self.activation),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "normalize_first": self.normalize_first,
            "attention": arguments.serialize(self.attention),
            "feed_forward": arguments.serialize(self.feed_forward),
            "normalization": arguments.serialize(self.normalization),
            "use_bias": self.use_bias,
            "gated": self.gated,
            "parallel": self.parallel,
            "sandwich_norm": self.sandwich_norm,
            "layer_scale": self.layer_scale,
            "residual_scale": self.residual_scale,
            "branch_gain": self.branch_gain,
            "stochastic_depth": self.stochastic_depth,
        }


def of_segments(segment_ids):
    """Arguments for an attention: none without segment_ids, which not all take."""
    return {} if segment_ids is None else {"segment_ids": segment_ids}


def _positive(name, value):
    return float(arguments.number(name, value, 0, what="a positive number"))
