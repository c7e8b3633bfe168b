"""Heat maps of attention weights."""

import importlib.util
import pathlib

import numpy as np

__all__ = ["plot_attention"]


def plot_attention(
    weights,
    source_tokens,
    target_tokens,
    title=None,
    columns=4,
    color_map="viridis",
):
    """Draws attention weights: a row a query, a column a key.

    Korean, Chinese and Japanese labels are drawn with the first font that has them:
    one of the system's, or that of the package `koreanize-matplotlib` where it is
    installed (`pip install keras_attn[examples]`).

    Args:
        weights: `(T, S)` for one map, or `(N, T, S)` for a grid, one map a head.
        source_tokens: S strings, labels of the keys.
        target_tokens: T strings, labels of the queries.
        title: str.
        columns: int, maps in a row of the grid.
        color_map: name of a matplotlib color map.

    Returns:
        A `matplotlib.figure.Figure`; save it with `figure.savefig(path)`.

    Raises:
        ImportError: without matplotlib.
        ValueError: where the labels do not fit the weights.

    Example:
        >>> weights = maps["decoder_5/cross_attention"][0]
        >>> figure = plot_attention(weights, source_tokens, target_tokens)
        >>> figure.savefig("attention.png")
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plot_attention needs matplotlib: pip install matplotlib"
        ) from error
    weights = np.asarray(weights, dtype="float32")
    if weights.ndim == 2:
        weights = weights[None]
    shape = (len(target_tokens), len(source_tokens))
    if weights.ndim != 3 or weights.shape[1:] != shape:
        raise ValueError(
            "`weights` must be of shape (T, S) or (N, T, S) with a label for each row "
            f"and column. Received: weights of shape {weights.shape}, "
            f"{shape[0]} target tokens, {shape[1]} source tokens"
        )
    if not weights.size or columns < 1:
        raise ValueError(
            "`weights` must not be empty, nor `columns` less than 1. "
            f"Received: weights of shape {weights.shape}, {columns=}"
        )
    heads = len(weights)
    columns = min(columns, heads)
    rows = -(-heads // columns)
    cell = 0.32 if heads == 1 else 0.24
    size = (
        columns * (cell * shape[1] + 1.6) + 0.6,
        rows * (cell * shape[0] + 1.4) + (0.6 if title else 0.2),
    )
    figure = Figure(figsize=size, layout="constrained")
    fonts = _font_families("".join([*source_tokens, *target_tokens, title or ""]))
    top = float(weights.max()) or 1.0
    for head, values in enumerate(weights):
        axes = figure.add_subplot(rows, columns, head + 1)
        image = axes.imshow(values, cmap=color_map, vmin=0.0, vmax=top, aspect="auto")
        axes.set_xticks(range(shape[1]), source_tokens, rotation=60, ha="right")
        axes.set_yticks(range(shape[0]), target_tokens)
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            label.set(fontfamily=fonts, fontsize=9, parse_math=False)
            label.set_rotation_mode("anchor")
        if heads > 1:
            axes.set_title(f"head {head}", fontsize=9)
    figure.colorbar(image, ax=figure.axes, shrink=0.8, label="attention weight")
    if title:
        figure.suptitle(title, fontfamily=fonts, parse_math=False)
    return figure


def _font_families(text):
    """Matplotlib's own font, then one that has the characters it lacks, if any does."""
    from matplotlib import font_manager

    default = font_manager.findfont("DejaVu Sans")
    missing = {ord(c) for c in text} - set(_characters(default))
    families = ["DejaVu Sans"]
    if missing:
        paths = [*_bundled_fonts(), *font_manager.findSystemFonts()]
        best = max(paths, key=lambda path: len(missing & _characters(path)), default="")
        if best and missing & _characters(best):
            font_manager.fontManager.addfont(best)
            families.append(font_manager.FontProperties(fname=best).get_name())
    return families


def _bundled_fonts():
    """Fonts of koreanize-matplotlib, found without importing it (it sets defaults)."""
    spec = importlib.util.find_spec("koreanize_matplotlib")
    if spec is None or not spec.origin:
        return []
    return sorted(map(str, pathlib.Path(spec.origin).parent.glob("fonts/*Gothic.ttf")))


def _characters(path):
    from matplotlib.ft2font import FT2Font

    try:
        return FT2Font(path).get_charmap().keys()
    except (RuntimeError, OSError):  # a font that FreeType cannot read
        return set()
