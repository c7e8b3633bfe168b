"""Heat maps: their contents and fonts."""

import io

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from keras_attn.inspection import plot_attention

SOURCE, TARGET = ["a", "b", "c"], ["x", "y"]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape)


def maps(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def draw(figure: Figure) -> None:
    """Draw a figure; a missing character raises a warning, which the tests turn into
    an error."""
    figure.savefig(io.BytesIO(), format="png", dpi=50)


def labels(axis: Axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_one_map() -> None:
    values = weights(2, 3)
    figure = plot_attention(values, SOURCE, TARGET, title="one")
    assert isinstance(figure, Figure)
    (axes,) = maps(figure)
    (image,) = axes.images
    np.testing.assert_allclose(image.get_array(), values, rtol=1e-6)
    assert labels(axes.xaxis) == SOURCE
    assert labels(axes.yaxis) == TARGET
    assert figure.get_suptitle() == "one"
    draw(figure)


def test_maps_of_a_grid_share_one_scale() -> None:
    values = weights(5, 2, 3)
    figure = plot_attention(values, SOURCE, TARGET, columns=3)
    assert [axes.get_title() for axes in maps(figure)] == [
        f"head {i}" for i in range(5)
    ]
    for head, axes in enumerate(maps(figure)):
        np.testing.assert_allclose(axes.images[0].get_array(), values[head], rtol=1e-6)
        assert axes.images[0].get_clim() == pytest.approx((0, values.max()))
        grid = axes.get_subplotspec().get_gridspec()
        assert (grid.nrows, grid.ncols) == (2, 3)
    draw(figure)


@pytest.mark.parametrize(
    ("source", "title"),
    [
        (["나는", "학교에", "간다."], "나는 학교에 간다."),
        (["▁the", "$_$", "a_b^c"], "no formula: $_$"),
        (["", " ", "é"], None),
    ],
)
def test_labels_are_drawn_unchanged(source: list[str], title: str | None) -> None:
    figure = plot_attention(weights(2, 3), source, ["go", "한국어"], title=title)
    draw(figure)
    assert labels(maps(figure)[0].xaxis) == source


def test_zero_weights() -> None:
    draw(plot_attention(np.zeros((2, 3)), SOURCE, TARGET))


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [
        ((2, 3), SOURCE[:2], TARGET),
        ((2, 3), SOURCE, TARGET[:1]),
        ((3, 2), SOURCE, TARGET),
        ((4, 3, 2), SOURCE, TARGET),
        ((3,), SOURCE, TARGET),
        ((1, 4, 2, 3), SOURCE, TARGET),
    ],
)
def test_mismatched_labels_raise(
    shape: tuple[int, ...], source: list[str], target: list[str]
) -> None:
    message = (
        f"label.*Received: weights of shape.*{len(target)} target.*{len(source)} source"
    )
    with pytest.raises(ValueError, match=message):
        plot_attention(weights(*shape), source, target)


@pytest.mark.parametrize(("shape", "columns"), [((2, 3), 0), ((0, 2, 3), 4)])
def test_empty_weights_or_columns_raise(shape: tuple[int, ...], columns: int) -> None:
    with pytest.raises(ValueError, match="must not be empty.*Received"):
        plot_attention(weights(*shape), SOURCE, TARGET, columns=columns)
