"""What there is to know of a family of published models."""

import dataclasses
import typing

__all__ = ["Family", "Options", "untied"]


@dataclasses.dataclass(frozen=True)
class Options:
    """What a user may ask for beside what the config says.

    Attributes:
        dropout: float, or None for the config's.
        use_segments: bool, whether the numbers of segments are an input.
        pooling: of `"sentence_embedding"`: dict with `"pooling"`, what
            `TokenPooling` takes, and `"normalize"`, a bool.
    """

    dropout: float | None = None
    use_segments: bool = False
    pooling: dict | None = None


@dataclasses.dataclass(frozen=True)
class Family:
    """How a family's models are put together, and how their weights are named.

    Attributes:
        name: str, what `config.json` has as `model_type`.
        tasks: dict from a task to the name that `config.json` has for a model of it
            among its `architectures`; the first is that of a model without a head.
        build: function of the config, the task and `Options`, that gives inputs and
            outputs of a model.
        names: function of the model, the config and the task, that gives the entries
            of all weights; see `names.entries`.
        base: str, what the names of tensors begin with in models that have a head.
        heads: tuple of what names begin with that a model without them need not read.
        buffers: tuple of what names end with that no model need read: older files hold
            what is no weight.
        fresh: tuple of layers of ours that may be new, of the task `"classification"`.
        aliases: pairs of an end of names, and one that some files have in its place.
        settings: function of the `Folder`, that gives what of its config to change for
            what its tensors are.
    """

    name: str
    tasks: dict
    build: typing.Callable
    names: typing.Callable
    base: str = ""
    heads: tuple = ()
    buffers: tuple = ()
    fresh: tuple = ()
    aliases: tuple = ()
    settings: typing.Callable = lambda folder: {}

    def task_of(self, architectures):
        """The task of a model with these `architectures`; that without a head if they
        are not known."""
        for task, architecture in self.tasks.items():
            if architecture in architectures:
                return task
        return next(iter(self.tasks))

    def spellings(self, name):
        """The names a tensor may have in a file, the usual one first: with what names
        begin with in models that have a head, or without."""
        short = name.removeprefix(self.base)
        for spelled in (name, short, self.base + short):
            yield spelled
            for end, other in self.aliases:
                if spelled.endswith(end):
                    yield spelled.removesuffix(end) + other


def untied(head, *embeddings):
    """`Family.settings` of models whose config says, or not, that a head is tied.

    The tensors tell: where both are there and differ, it is not, as `transformers` has
    it as well.

    Args:
        head: name of the head's tensor.
        embeddings: names the embedding's may have.
    """

    def settings(folder):
        found = [name for name in embeddings if name in folder.shapes]
        if head not in folder.shapes or not found or folder.are_equal(head, found[0]):
            return {}
        return {"tie_word_embeddings": False}

    return settings
