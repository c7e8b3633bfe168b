"""What a model says of its token ids: how many there are, and which is padding."""

from keras_attn._graph import functional

__all__ = ["masked_id", "masked_ids", "vocabulary_sizes"]


def vocabulary_sizes(model):
    """Number of ids an embedding knows, for each input that goes into one.

    Returns:
        A dict from input name to int.
    """
    sizes = {}
    for name, call in _uses(model):
        size = getattr(call.operation, "input_dim", None)
        if isinstance(size, int):
            sizes[name] = min(size, sizes.get(name, size))
    return sizes


def masked_ids(model):
    """The id that each input's mask leaves out, for each input with such a mask.

    It is made by an embedding, or by comparing: `keras.ops.not_equal(ids, padding_id)`.

    Returns:
        A dict from input name to int.
    """
    found = {}
    for name, call in _uses(model):
        operation = call.operation
        if type(operation).__name__ == "NotEqual":  # `keras.ops` names functions only
            padding_id = next((x for x in call.args if isinstance(x, int)), None)
        else:
            masks_zero = getattr(operation, "mask_zero", False)
            padding_id = getattr(operation, "padding_id", 0 if masks_zero else None)
        if padding_id is not None:
            found[name] = padding_id
    return found


def masked_id(masked, name, bound):
    """Of `masked_ids` that of input `name`, else of another one; None if there is none
    below `bound`."""
    for padding_id in (masked.get(name), *masked.values()):
        if padding_id is not None and 0 <= padding_id < bound:
            return padding_id
    return None


def _uses(model):
    """Pairs: the name of an input, a call that it goes into as it is."""
    names = {id(tensor): tensor.name for tensor in model.inputs}
    for call in functional.read(model).calls:
        for tensor in call.inputs:
            if id(tensor) in names:
                yield names[id(tensor)], call
