"""Functional model that stores the origin of its weights."""

from typing import Any, Self

import keras

from keras_attn.models.half_precision import HalfPrecisionModel

__all__ = ["PublishedModel"]


@keras.saving.register_keras_serializable(package="keras_attn")
class PublishedModel(HalfPrecisionModel):
    """The Functional model that `keras_attn.checkpoints.load` returns.

    Args:
        inputs, outputs, name: arguments of `keras.Model`.
        published: dict with `"family"` and `"task"`, their names, `"config"`, the
            contents of `config.json`, and `"pooling"`, the result of `read_pooling` or
            None. It is saved with the model.
        **kwargs: further arguments of `keras.Model`.
    """

    def __init__(
        self,
        inputs: Any,
        outputs: Any,
        name: str | None = None,
        *,
        published: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(inputs, outputs, name=name, **kwargs)
        # A function, because Keras would track and wrap the contents of a dict.
        self._published = lambda: published

    @property
    def published(self) -> dict[str, Any] | None:
        return self._published()

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "published": self.published}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        published = config.pop("published", None)
        model = super().from_config(config, custom_objects)
        model._published = lambda: published
        return model  # pyright: ignore[reportReturnType]
