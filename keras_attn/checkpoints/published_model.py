"""Functional model that stores the origin of its weights."""

from typing import Any, Self

import keras

from keras_attn._keras_internals import Untracked
from keras_attn.models.half_precision import HalfPrecisionModel

__all__ = ["PublishedModel"]


@keras.saving.register_keras_serializable(package="keras_attn")
class PublishedModel(HalfPrecisionModel):
    """The Functional model that `keras_attn.checkpoints.load` returns.

    Args:
        inputs, outputs, name: arguments of `keras.Model`.
        published: dict with `"family"` and `"task"`, their names, `"config"`, the
            contents of `config.json`, `"pooling"`, the result of `read_pooling` or
            None, and `"banned_token_ids"`. It is saved with the model.
        **kwargs: further arguments of `keras.Model`.

    Attributes:
        banned_token_ids: tuple of the ids that `decoding.generate` excludes by default.
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
        # Keras would wrap the contents of a dict.
        self._published = Untracked(published)

    @property
    def published(self) -> dict[str, Any] | None:
        return self._published.value

    @property
    def banned_token_ids(self) -> tuple[int, ...]:
        return tuple((self.published or {}).get("banned_token_ids", ()))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "published": self.published}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        published = config.pop("published", None)
        model = super().from_config(config, custom_objects)
        model._published = Untracked(published)
        return model  # pyright: ignore[reportReturnType]
