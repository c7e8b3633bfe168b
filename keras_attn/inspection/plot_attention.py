"""Heat maps of attention weights."""

import importlib.util
import pathlib
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from keras_attn._types import Tensor

__all__ = ["plot_attention"]


def plot_attention(
    weights: Tensor,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
    columns: int = 4,
    color_map: str = "viridis",
) -> "Figure":
    """Plot attention weights as heat maps, with queries as rows and keys as columns.

    Korean, Chinese and Japanese labels use the first font that contains their
    characters: a font of the system, or of the package `koreanize-matplotlib` if it is
    installed (`pip install keras_attn[examples]`).

    Args:
        weights: Attention weights, (T, S) for a single map or (N, T, S) for a grid with
            one map per head.
        source_tokens: Labels of the keys, S strings.
        target_tokens: Labels of the queries, T strings.
        title: String. Title of the figure.
        columns: Positive int. Maximum number of maps in a row of the grid.
        color_map: String. Name of a matplotlib color map.

    Returns:
        A `matplotlib.figure.Figure`. Save it with `figure.savefig(path)`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the labels do not match the weights, if `weights` are empty, or
            if `columns` is less than 1.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from keras_attn import inspection
        >>> weights = np.full((2, 2, 3), 1 / 3)  # 2 heads, 2 queries, 3 keys
        >>> figure = inspection.plot_attention(weights, ["a", "b", "c"], ["x", "y"])
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['head 0', 'head 1']
        >>> with tempfile.TemporaryFile() as file:
        ...     figure.savefig(file)
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plot_attention requires matplotlib: pip install matplotlib"
        ) from error
    weights = np.asarray(weights, dtype="float32")
    if weights.ndim == 2:
        weights = weights[None]
    shape = (len(target_tokens), len(source_tokens))
    if weights.ndim != 3 or weights.shape[1:] != shape:
        raise ValueError(
            "`weights` must have shape (T, S) or (N, T, S), with one label per row and "
            f"per column. Received: weights of shape {weights.shape}, "
            f"{shape[0]} target tokens, {shape[1]} source tokens"
        )
    if not weights.size or columns < 1:
        raise ValueError(
            "`weights` must not be empty, and `columns` must be at least 1. "
            f"Received: weights of shape {weights.shape}, {columns=}"
        )
    num_heads = len(weights)
    columns = min(columns, num_heads)
    rows = -(-num_heads // columns)
    cell = 0.32 if num_heads == 1 else 0.24  # inches
    size = (
        columns * (cell * shape[1] + 1.6) + 0.6,
        rows * (cell * shape[0] + 1.4) + (0.6 if title else 0.2),
    )
    figure = Figure(figsize=size, layout="constrained")
    fonts = _font_families("".join([*source_tokens, *target_tokens, title or ""]))
    maximum = float(weights.max()) or 1.0
    for head, values in enumerate(weights):
        axes = figure.add_subplot(rows, columns, head + 1)
        image = axes.imshow(
            values, cmap=color_map, vmin=0.0, vmax=maximum, aspect="auto"
        )
        axes.set_xticks(range(shape[1]), source_tokens, rotation=60, ha="right")
        axes.set_yticks(range(shape[0]), target_tokens)
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            label.set(fontfamily=fonts, fontsize=9, parse_math=False)
            label.set_rotation_mode("anchor")
        if num_heads > 1:
            axes.set_title(f"head {head}", fontsize=9)
    figure.colorbar(
        image,  # pyright: ignore[reportPossiblyUnboundVariable]
        ax=figure.axes,
        shrink=0.8,
        label="attention weight",
    )
    if title:
        figure.suptitle(title, fontfamily=fonts, parse_math=False)
    return figure


def _font_families(text: str) -> list[str]:
    """Return matplotlib's default font and, if it lacks characters, the best other."""
    from matplotlib import font_manager

    default = font_manager.findfont("DejaVu Sans")
    missing = {ord(c) for c in text} - set(_code_points(default))
    families = ["DejaVu Sans"]
    if missing:
        paths = [*_bundled_fonts(), *font_manager.findSystemFonts()]
        best = max(
            paths, key=lambda path: len(missing & _code_points(path)), default=""
        )
        if best and missing & _code_points(best):
            font_manager.fontManager.addfont(best)
            families.append(font_manager.FontProperties(fname=best).get_name())
    return families


def _bundled_fonts() -> list[str]:
    """Return the font files of koreanize-matplotlib.

    The package is not imported, since that changes the defaults of matplotlib.
    """
    spec = importlib.util.find_spec("koreanize_matplotlib")
    if spec is None or not spec.origin:
        return []
    return sorted(map(str, pathlib.Path(spec.origin).parent.glob("fonts/*Gothic.ttf")))


def _code_points(path: str) -> Set[int]:
    """Return the code points of the characters in a font file."""
    from matplotlib.ft2font import FT2Font

    try:
        return FT2Font(path).get_charmap().keys()
    except (RuntimeError, OSError):  # not readable by FreeType
        return set()
