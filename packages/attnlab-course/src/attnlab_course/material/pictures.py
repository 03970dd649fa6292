"""Pictures for the statements of exercises: line charts and maps of a few numbers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_lines(
    title: str,
    axes: tuple[str, str],
    x: Sequence[float],
    curves: Mapping[str, Any],
    **settings: Any,
) -> "Figure":
    """Draw curves over the same x.

    Args:
        title: the heading.
        axes: what x and y are.
        x: where the curves have values.
        curves: the values of each, by its name.
        settings: of `attnlab.draw.sections.Lines`.
    """
    from attnlab.draw.pictures.charts import lines_figure
    from attnlab.draw.sections import Lines, Series

    places = np.asarray(x).tolist()
    series = [
        Series(name=name, x=places, y=np.asarray(values).tolist())
        for name, values in curves.items()
    ]
    x_label, y_label = axes
    return lines_figure(
        Lines(title=title, caption="", x_label=x_label, y_label=y_label, series=series, **settings)
    )


def draw_maps(
    maps: Mapping[str, Any],
    axes: tuple[str, str],
    size: tuple[float, float],
    ends: tuple[float, float] = (0.0, 1.0),
    labels: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None),
) -> "Figure":
    """Draw matrices side by side, as colors, with one bar that says what the colors mean.

    Args:
        maps: the matrices by their titles.
        axes: what rows and columns are.
        size: the figure's width and height, in inches.
        ends: the numbers of the first and of the last color.
        labels: of rows and columns; their numbers where it is None.
    """
    from attnlab.draw.pictures.look import new_figure
    from attnlab.draw.pictures.maps import draw_map
    from attnlab.draw.sections import Heatmap

    figure = new_figure(*size)
    for number, (title, matrix) in enumerate(maps.items(), 1):
        rows = np.asarray(matrix)
        names = [
            list(map(str, range(count))) if texts is None else texts
            for texts, count in zip(labels, rows.shape, strict=True)
        ]
        heatmap = Heatmap(
            title=title,
            rows=rows.tolist(),
            row_labels=names[0],
            column_labels=names[1],
            row_title=axes[0],
            column_title=axes[1],
            low=ends[0],
            high=ends[1],
        )
        image = draw_map(figure.add_subplot(1, len(maps), number), heatmap)
    figure.colorbar(image, ax=figure.axes[-1], fraction=0.04)
    return figure
