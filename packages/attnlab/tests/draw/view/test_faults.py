"""Planted faults: each makes the view or a figure lie, and each is caught by a check that other
tests rely on."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from attnlab.draw import bundle as bundling
from attnlab.draw import markup, wire
from attnlab.draw.attention import Pattern, shades
from attnlab.draw.attention import pattern as pattern_module
from attnlab.draw.view import maps as view_maps
from attnlab.draw.view import view_page
from attnlab.draw.view.maps import fit_maps
from attnlab.errors import WrongUsage

from ..attention.checks import check_difference_is_centred
from ..attention.patterns import make_layers, make_pattern
from ..views import Open
from .reading import check_maps
from .viewing import (
    check_cell,
    check_masked_cell_is_hatched,
    check_names_keep_out_of_the_corner,
    long_names,
    ready,
)

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _scripts_made_anew() -> Iterator[None]:
    markup._script.cache_clear()
    yield
    markup._script.cache_clear()


def transposed_axes(patch: pytest.MonkeyPatch) -> None:
    own = Pattern.whole
    patch.setattr(
        Pattern,
        "whole",
        lambda self, head: np.where(
            np.isnan(own(self, head)), np.nan, own(self, head)[::-1, ::-1].T
        ),
    )


def one_row_late(patch: pytest.MonkeyPatch) -> None:
    own = wire.quantize

    def late(rows: Any, levels: int, zero: int = 0) -> Any:
        largest, codes = own(rows, levels, zero)
        return np.roll(largest, 1), codes

    patch.setattr(wire, "quantize", late)


def one_head_late(patch: pytest.MonkeyPatch) -> None:
    own = view_maps._Packer._layer

    def layer(self: Any, variants: Any, thumb: int) -> Any:
        found = own(self, variants, thumb)
        return {**found, "heads": [*found["heads"][1:], found["heads"][0]]}

    patch.setattr(view_maps._Packer, "_layer", layer)


def wrong_head(patch: pytest.MonkeyPatch) -> None:
    own = Pattern.rows
    patch.setattr(
        Pattern, "rows", lambda self, head, a, b: own(self, (head + 1) % self.num_heads, a, b)
    )


def cut_instead_of_rounded(patch: pytest.MonkeyPatch) -> None:
    def cut(rows: Any, levels: int, zero: int = 0) -> Any:
        largest = np.nanmax(rows, -1)
        codes = np.sqrt(rows / largest[:, None]) * levels
        return largest, np.nan_to_num(codes, nan=255).astype(np.uint8)

    patch.setattr(wire, "quantize", cut)


def linear_codes(patch: pytest.MonkeyPatch) -> None:
    def linear(rows: Any, levels: int, zero: int = 0) -> Any:
        largest = np.nanmax(rows, -1)
        codes = np.rint(rows / largest[:, None] * levels)
        return largest, np.nan_to_num(codes, nan=255).astype(np.uint8)

    patch.setattr(wire, "quantize", linear)


def masked_as_zero(patch: pytest.MonkeyPatch) -> None:
    own = Pattern.whole
    patch.setattr(Pattern, "whole", lambda self, head: np.nan_to_num(own(self, head)))


def mask_one_key_short(patch: pytest.MonkeyPatch) -> None:
    own = Pattern.whole

    def whole(self: Any, head: int) -> Any:
        found = own(self, head)
        found[np.arange(len(found)), np.arange(len(found))] = np.nan  # a query hides itself
        return found

    patch.setattr(Pattern, "whole", whole)


IN_THE_WIRE = [
    transposed_axes, one_row_late, one_head_late, wrong_head, cut_instead_of_rounded, linear_codes,
    masked_as_zero, mask_one_key_short,
]  # fmt: skip


@pytest.mark.parametrize("plant", IN_THE_WIRE, ids=lambda plant: plant.__name__)
def test_a_fault_in_the_wire_form_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = make_layers(length=8)
    check_maps(fit_maps(patterns, max_bytes=10**7), patterns)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check_maps(fit_maps(patterns, max_bytes=10**7), patterns)


IN_THE_PAGE = {
    "transposed": (
        "values[k] = largest[Math.floor(k / columns)]",
        "values[(k % rows) * columns + Math.floor(k / rows)] = largest[Math.floor(k / columns)]",
    ),
    "one column late": ("const j = Math.floor((px - left", "const j = 1 + Math.floor((px - left"),
    "next head": (".heads[head].maps[each]", ".heads[(head + 1) % 3].maps[each]"),
    "without the bound": (
        "/ levels + largest[i] / (4 * levels ** 2)",
        "* 1e-9",
    ),
    "weight instead of root": (" * Math.abs((code - zero) / levels)", ""),
    "one code off": ("((code - zero) / levels) *", "((code + 3 - zero) / levels) *"),
    "mask ignored": (
        "if (code !== MISSING) values[k] =",
        "values[k] = code === MISSING ? 0 :",
    ),
}


def check_cells(page: Any, pattern: Pattern) -> None:
    for row, column in ((6, 1), (5, 2), (7, 3)):
        check_cell(page, pattern, 0, row, column)


@pytest.mark.parametrize("name", IN_THE_PAGE)
def test_a_fault_in_the_page_is_caught(
    name: str, open_html: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = IN_THE_PAGE[name]
    own = bundling._read

    def planted(module: str) -> str:
        text = own(module)
        planted.count += text.count(before)  # type: ignore[attr-defined]
        return text.replace(before, after)

    planted.count = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(bundling, "_read", planted)
    patterns = [make_pattern()]
    page = open_html(view_page(patterns))
    assert planted.count == 1  # type: ignore[attr-defined]
    ready(page)
    if name == "mask ignored":
        with pytest.raises(AssertionError, match="looks like a weight of zero"):
            check_masked_cell_is_hatched(page, 1, 6)
        return
    if name == "one column late":
        from .test_view import check_pointing

        with pytest.raises(AssertionError):
            check_pointing(page, 5, 2)
        return
    with pytest.raises(AssertionError):
        check_cells(page, patterns[0])


def test_masked_cells_drawn_as_zero_on_the_page_are_caught(
    open_html: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, before = (
        bundling._read,
        "if (!Number.isNaN(value)) pixels[i * columns + j] = pixelOf(value, ",
    )
    assert before in own("attnlab/draw/map/paint.js")
    after = "if (true) pixels[i * columns + j] = pixelOf(value || 0, "
    monkeypatch.setattr(bundling, "_read", lambda name: own(name).replace(before, after))
    page = ready(open_html(view_page([make_pattern()])))
    with pytest.raises(AssertionError, match="looks like a weight of zero"):
        check_masked_cell_is_hatched(page, 1, 6)


@pytest.mark.parametrize("before", ["y < box.top", "x < box.left"])
def test_names_in_the_corner_are_caught(
    before: str, open_html: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = bundling._read
    assert before in own("attnlab/draw/map/paint.js")
    monkeypatch.setattr(bundling, "_read", lambda name: own(name).replace(before, "false && 0"))
    page = ready(open_html(view_page([long_names()])))
    with pytest.raises(AssertionError, match="names meet in the corner"):
        check_names_keep_out_of_the_corner(page)


def test_a_difference_whose_colours_are_not_centred_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = make_pattern(seed=1), make_pattern(seed=2)
    check_difference_is_centred(one, other)
    from matplotlib.colors import Normalize

    monkeypatch.setattr(
        shades, "_norm", lambda scale, high, is_signed: Normalize(-0.5 * high, high)
    )
    with pytest.raises(AssertionError, match="not centred"):
        check_difference_is_centred(one, other)


def test_a_budget_that_is_not_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_maps, "_text_size", lambda packed: 0)
    monkeypatch.setattr(view_maps, "_ladder", lambda variants, max_bytes: [(254, 1)])
    with pytest.raises(WrongUsage, match=r"the page takes .* bytes, more than the 300,000 allowed"):
        view_page(make_layers(2, 6, 300, is_causal=False), max_bytes=300_000)


def test_a_weight_that_is_no_number_never_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = make_pattern()
    pattern.weights[1, 3, 2] = float("nan")
    with pytest.raises(WrongUsage, match="nan"):
        view_page([pattern])
    monkeypatch.setattr(
        pattern_module.np, "isfinite", lambda values: np.ones(np.shape(values), bool)
    )
    with pytest.raises(AssertionError), np.errstate(invalid="ignore"):
        check_maps(fit_maps([pattern], max_bytes=10**7), [pattern])
