"""Checks of figures that tests, and planted faults, share."""

import numpy as np

from attnlab.draw.attention import draw_difference


def picture_of(figure, number=0):
    """The first picture of cells in a figure, with its axes."""
    axes = [each for each in figure.axes if each.images and each.get_label() != "<colorbar>"][
        number
    ]
    return axes.images[0], axes


def check_difference_is_centred(one, other):
    """Nothing is the middle of the colours, and as much up as down is as far from it."""
    picture, _ = picture_of(draw_difference(one, other))
    at = np.asarray(picture.norm([-0.3, 0.0, 0.3]))
    assert abs(at[1] - 0.5) < 1e-6, "the scale is not centred on zero"
    assert abs((at[0] + at[2]) / 2 - 0.5) < 1e-6, "the scale is not centred on zero"
