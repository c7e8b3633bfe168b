"""A Functional model that knows which published model it is one of."""

import keras

__all__ = ["PublishedModel"]


@keras.saving.register_keras_serializable(package="keras_attn")
class PublishedModel(keras.Model):
    """What `keras_attn.checkpoints.load` gives: a Functional model, with its origin.

    Args:
        inputs, outputs, name: of `keras.Model`.
        published: dict: `"family"` and `"task"`, names of them, `"config"`, what
            `config.json` held, and `"pooling"`, what `pooling_of` gave, or None. Saved
            with the model.
    """

    def __init__(self, inputs, outputs, name=None, *, published=None, **kwargs):
        super().__init__(inputs, outputs, name=name, **kwargs)
        # In a function, since Keras would track, and wrap, what is in a dict.
        self._published = lambda: published

    @property
    def published(self):
        return self._published()

    def get_config(self):
        return {**super().get_config(), "published": self.published}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        published = config.pop("published", None)
        model = super().from_config(config, custom_objects)
        model._published = lambda: published
        return model
