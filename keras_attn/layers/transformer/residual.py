"""The residual connection of the Transformer blocks, in its one place."""

import keras
from keras import initializers, ops

from keras_attn.layers._internal.normalization import make_normalization

__all__ = ["Residual"]


class Residual:
    """The residual connection around one branch of a block.

    Called with a branch it gives, of `x` and as far as the block asks for it,

        normalized before:  s * x + drop(scale * norm_out(branch(norm(x))))
        normalized after:   norm(s * x + drop(scale * branch(x)))

    where `drop` is dropout, then stochastic depth.

    Args:
        block: a `TransformerBlock`, whose arguments say what is asked for. It gets
            the layers and the weight as attributes, since Keras tracks and saves
            none in an object like this.
        name: str, of the branch: what all names of layers begin with.
        shape: shape of `x`, `(B, T, D)`.
    """

    def __init__(self, block, name, shape):
        self.normalize_first = block.normalize_first
        self.residual_scale = block.residual_scale
        self._block, self._name = block, name
        self._norm = self._normalization("layer_norm", shape)
        self._output_norm = None
        if block.sandwich_norm:
            self._output_norm = self._normalization("output_norm", shape)
        self._scale = None
        if block.layer_scale is not None:
            self._scale = block.add_weight(
                name=f"{name}_layer_scale",
                shape=shape[-1:],
                initializer=initializers.Constant(block.layer_scale),
            )
        self._drops = [self._dropout("dropout", block.dropout)]
        if block.stochastic_depth > 0:
            # One draw for a row: all its positions and channels, or none.
            self._drops.append(
                self._dropout("stochastic_depth", block.stochastic_depth, (None, 1, 1))
            )

    def __call__(self, x, branch, training=None):
        """`x` plus what a branch makes of it.

        Args:
            x: `(B, T, D)`.
            branch: callable from a tensor like `x` to a pair of a tensor like `x` and
                anything else the branch has to tell.
            training: bool, whether dropout is on.

        Returns:
            A pair of a tensor like `x` and what the branch told.
        """
        output, told = branch(self._norm(x) if self.normalize_first else x)
        if self._output_norm is not None:
            output = self._output_norm(output)
        if self._scale is not None:
            output = output * ops.cast(self._scale, output.dtype)
        for drop in self._drops:
            output = drop(output, training=training)
        output = (x if self.residual_scale == 1 else self.residual_scale * x) + output
        return output if self.normalize_first else self._norm(output), told

    def _normalization(self, part, shape):
        block = self._block
        layer = make_normalization(
            block.normalization,
            block.layer_norm_epsilon,
            f"{self._name}_{part}",
            block.dtype_policy,
            center=block.use_bias,
        )
        layer.build(shape)
        return self._kept(part, layer)

    def _dropout(self, part, rate, noise_shape=None):
        layer = keras.layers.Dropout(
            rate,
            noise_shape=noise_shape,
            name=f"{self._name}_{part}",
            dtype=self._block.dtype_policy,
        )
        return self._kept(part, layer)

    def _kept(self, part, layer):
        setattr(self._block, f"_{self._name}_{part}", layer)
        return layer
