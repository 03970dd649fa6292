"""Planted faults: each makes the view or a figure lie."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import Normalize

from attnlab.draw import bundle as bundling
from attnlab.draw import markup, wire
from attnlab.draw.attention import Pattern, shades
from attnlab.draw.view import maps as view_maps
from attnlab.draw.view import view_page
from attnlab.draw.view.maps import fit_maps
from tests.sampling import sampled

from ..attention.checks import check_difference_is_centred
from ..attention.patterns import make_layers, make_pattern
from .reading import check_maps
from .viewing import (
    check_cell,
    check_masked_cell_is_hatched,
    check_names_keep_out_of_the_corner,
    check_pointing,
    long_names,
    ready,
)

WHOLE, ROWS, QUANTIZE = Pattern.whole, Pattern.rows, wire.quantize
LAYER = view_maps._Packer._layer


def transposed(self, head):
    whole = WHOLE(self, head)
    return np.where(np.isnan(whole), np.nan, whole[::-1, ::-1].T)


def hiding_itself(self, head):
    whole = WHOLE(self, head)
    np.fill_diagonal(whole, np.nan)
    return whole


def row_late(*given):
    largest, codes = QUANTIZE(*given)
    return np.roll(largest, 1), codes


def coded(to_codes):
    """Quantize with other codes for shares of a row's largest weight."""

    def quantize(rows, levels, zero=0):
        largest = np.nanmax(rows, -1)
        codes = to_codes(rows / largest[:, None], levels)
        return largest, np.nan_to_num(codes, nan=255).astype(np.uint8)

    return quantize


def head_late(self, variants, thumb):
    first, *others = (found := LAYER(self, variants, thumb))["heads"]
    return {**found, "heads": [*others, first]}


IN_THE_WIRE: dict[str, tuple[Any, str, Any]] = {
    "transposed axes": (Pattern, "whole", transposed),
    "masked as zero": (Pattern, "whole", lambda *given: np.nan_to_num(WHOLE(*given))),
    "mask one key short": (Pattern, "whole", hiding_itself),
    "wrong head": (Pattern, "rows", lambda self, head, *ends: ROWS(self, (head + 1) % 3, *ends)),
    "one row late": (wire, "quantize", row_late),
    "one head late": (view_maps._Packer, "_layer", head_late),
    "cut, not rounded": (wire, "quantize", coded(lambda share, n: np.sqrt(share) * n)),
    "linear codes": (wire, "quantize", coded(lambda share, n: np.rint(share * n))),
}


@pytest.mark.parametrize("name", IN_THE_WIRE)
def test_a_fault_in_the_wire_form_is_caught(name, monkeypatch):
    patterns = make_layers(length=8)
    check_maps(fit_maps(patterns, max_bytes=10**7), patterns)
    monkeypatch.setattr(*IN_THE_WIRE[name])
    with pytest.raises(AssertionError):
        check_maps(fit_maps(patterns, max_bytes=10**7), patterns)


def check_cells(page):
    for row, column in ((6, 1), (5, 2), (7, 3)):
        check_cell(page, make_pattern(), 0, row, column)


def check_pointed(page):
    check_pointing(page, 5, 2)


def check_hatched(page):
    check_masked_cell_is_hatched(page, 1, 6)


ONE, WIDE = make_pattern, long_names
IN_THE_PAGE: list[tuple[str, str, Callable[[], Pattern], Callable[[Any], None]]] = [
    ("const j = Math.floor((px - left", "const j = 1 + Math.floor((px - left", ONE, check_pointed),
    ("if (code !== MISSING) v", "if (code === MISSING) values[k] = 0; else v", ONE, check_hatched),
    (
        "values[k] = largest[Math.floor(k / columns)]",
        "values[(k % rows) * columns + Math.floor(k / rows)] = largest[Math.floor(k / columns)]",
        ONE,
        check_cells,
    ),
    ("y < box.top", "false && 0", WIDE, check_names_keep_out_of_the_corner),
    (".heads[head].maps[each]", ".heads[(head + 1) % 3].maps[each]", ONE, check_cells),
    ("/ levels + largest[i] / (4 * levels ** 2)", "* 1e-9", ONE, check_cells),
    (" * Math.abs((code - zero) / levels)", "", ONE, check_cells),
    ("((code - zero) / levels) *", "((code + 3 - zero) / levels) *", ONE, check_cells),
    (
        "if (!Number.isNaN(value)) pixels[i * columns + j] = pixelOf(value, ",
        "if (true) pixels[i * columns + j] = pixelOf(value || 0, ",
        ONE,
        check_hatched,
    ),
    ("x < box.left", "false && 0", WIDE, check_names_keep_out_of_the_corner),
]
"""What stands in a script, what takes its place, on a page of what, and the check that fails."""


@pytest.fixture
def _scripts_made_anew():
    markup._script.cache_clear()
    yield
    markup._script.cache_clear()


@pytest.mark.usefixtures("_scripts_made_anew")
@pytest.mark.parametrize("fault", sampled(IN_THE_PAGE, 1))
def test_a_fault_in_the_page_is_caught(fault, open_html, monkeypatch):
    before, after, make, check = fault
    read, counts = bundling._read, []

    def planted(module):
        text = read(module)
        counts.append(text.count(before))
        return text.replace(before, after)

    monkeypatch.setattr(bundling, "_read", planted)
    page = ready(open_html(view_page([make()])))
    assert sum(counts)
    with pytest.raises(AssertionError):
        check(page)


def test_a_difference_whose_colours_are_not_centred_is_caught(monkeypatch):
    one, other = make_pattern(seed=1), make_pattern(seed=2)
    check_difference_is_centred(one, other)
    monkeypatch.setattr(shades, "_norm", lambda scale, high, is_signed: Normalize(-high / 2, high))
    with pytest.raises(AssertionError, match="not centred"):
        check_difference_is_centred(one, other)
