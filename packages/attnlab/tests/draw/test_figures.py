"""Figures: what is drawn, read back from matplotlib's own objects."""

import itertools
import math
import re
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from matplotlib import rc_context
from matplotlib.colors import to_hex

from attnlab.draw import figures
from attnlab.draw.attention.traces import trace_figure
from attnlab.draw.colors import HUES
from attnlab.draw.pictures.charts import bars_figure, lines_figure
from attnlab.draw.pictures.look import safe_text
from attnlab.draw.pictures.maps import maps_figure
from attnlab.errors import CouldNotRun

from .documents import (
    content_of,
    make_cross_document,
    make_document,
    make_kinds_document,
    make_map,
    make_section,
    report_of,
    section_of,
)


def plain(kind, **changes):
    sections = {each["kind"]: each for each in make_kinds_document()["sections"]}
    return {**sections[kind], **changes}


def section(kind, **changes):
    return section_of(plain(kind, **changes))


def choice_of(*maps):
    return {"label": "", "note": "", "maps": list(maps)}


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_every_section_that_names_a_figure_becomes_a_png_and_an_svg():
    document = make_kinds_document()
    document["sections"].append(make_document(num_steps=10)["sections"][1])  # without a figure
    content = content_of(document)
    files = figures.section_figures(content)
    names = ("parts", "length", "maps")
    assert sorted(files) == sorted(f"{name}.{kind}" for name in names for kind in ("png", "svg"))
    for name, picture in files.items():
        if name.endswith("png"):
            assert picture.startswith(b"\x89PNG")
        else:
            assert xml.etree.ElementTree.fromstring(picture).tag.endswith("svg")
    # The same each time, whatever a person's own settings are.
    with rc_context({"axes.facecolor": "red", "font.size": 30, "lines.marker": "x"}):
        assert files == figures.section_figures(content)


def test_without_matplotlib_there_are_no_figures(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "attnlab.draw.pictures.notebook_figure", raising=False)
    assert not figures.is_available()
    assert figures.section_figures(content_of(make_kinds_document())) == {}
    with pytest.raises(CouldNotRun, match=r"figures need matplotlib; .*'attnlab\[plot\]'"):
        lines_figure(section("lines"))


def test_lines_hold_the_data_bands_levels_and_a_logarithmic_axis():
    figure = lines_figure(section("lines"))
    (axes,) = figure.axes
    line = next(each for each in axes.lines if each.get_label() == "rotary")
    assert list(line.get_xdata()) == [8, 16, 32, 64]
    assert list(line.get_ydata())[:2] == [1.0, 0.75]
    assert math.isnan(line.get_ydata()[2])
    (level,) = (each for each in axes.lines if each.get_label() == "chance")
    assert set(level.get_ydata()) == {0.125}
    assert axes.get_xscale() == "log"
    assert list(axes.xaxis.get_major_locator()()) == [8, 16, 32, 64]
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert {0.9, 1.0, 0.65, 0.85} <= set(heights)
    assert 0.25 not in heights  # alone behind a gap, its interval is a stroke
    assert any(list(each.get_ydata()) == [0.25, 0.75] for each in axes.lines)
    (legend,) = figure.legends  # below the chart: it covers nothing
    assert [text.get_text() for text in legend.get_texts()] == ["rotary", "chance"]


def test_logarithmic_heights_are_worded_plainly():
    series = [{"name": "norm", "x": [1, 2], "y": [0.001, 100.0]}]
    figure = lines_figure(section("lines", series=series, levels=[], y_log=True))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    words = [label.get_text() for label in axes.get_yticklabels()]
    assert {"0.001", "0.1", "10"} <= set(words)
    assert not any("$" in word for word in words)


def test_bars_hold_values_whiskers_and_gaps():
    (axes,) = bars_figure(section("bars")).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [0.96, 0.5, 0.9, 0]
    assert [to_hex(bar.get_facecolor()) for bar in axes.patches] == [HUES[0]] * 2 + [HUES[1]] * 2
    whiskers = [
        tuple(line.get_ydata())
        for line in axes.lines
        if len(line.get_ydata()) == 2 and line.get_marker() == "_"
    ]
    assert whiskers == [(0.94, 0.98), (0.4, 0.6), (0.88, 0.92)]
    assert "n/a" in texts(axes)
    assert {"0.960", "0.500", "0.900"} <= set(texts(axes))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["full model", "no positions"]
    assert axes.get_ylim()[0] == 0


@pytest.mark.parametrize(
    ("rows", "columns", "low", "high"),
    [(1, 4, 0.95, 1.05), (12, 6, 0.95, 1.05), (4, 20, 0.95, 1.05), (30, 14, 1.5, 2.5)],
)
def test_cells_of_many_rows_are_wider_than_high_and_the_title_is_beside_its_map(
    rows, columns, low, high
):
    names = [f"{row}" for row in range(rows)], [f"{column}: token" for column in range(columns)]
    heatmap = make_map("heads", [[math.nan] * columns] * rows, names)
    choices = [choice_of(heatmap)]
    figure = maps_figure(section("maps", choices=choices, title="Share of the logit"))
    figure.draw_without_rendering()
    foot = figure._suptitle.get_window_extent().y0
    assert 0 < foot - figure.axes[0].get_tightbbox().y1 < 0.35 * figure.dpi
    start, across, down = figure.axes[0].transData.transform([(0, 0), (1, 0), (0, 1)])
    assert low < (across - start)[0] / abs((down - start)[1]) < high


def test_maps_hold_rows_names_and_ranges_with_numbers_where_they_are_few():
    figure = maps_figure(section("maps"))
    weights, scores = (axes for axes in figure.axes if axes.get_title(loc="left"))
    assert [axes.get_title(loc="left") for axes in (weights, scores)] == ["weights", "scores"]
    grid = weights.images[0].get_array()
    assert grid[1].tolist()[:2] == [0.25, 0.75]
    assert grid.mask[0].tolist() == [False, True, True]
    assert [label.get_text() for label in weights.get_yticklabels()] == ["the", "cat", "sat"]
    assert weights.images[0].get_clim() == (0, 1)
    assert scores.images[0].get_clim() == (-2, 2)
    assert texts(scores) == ["−2.00", "0.50", "2.00"]
    assert len(figure.axes) == 4  # two ranges, two colour bars
    low, zero, high = (scores.images[0].cmap(value) for value in (0.0, 0.5, 1.0))
    assert low[0] > low[2]  # brown
    assert high[2] > high[0]  # blue
    assert min(zero[:3]) > 0.9
    names = [str(i) for i in range(64)]
    large = make_map("large", [[0.5] * 64] * 64, (names, names))
    (axes, _) = maps_figure(section("maps", choices=[choice_of(large)])).axes
    assert texts(axes) == []
    assert 8 <= len(axes.get_yticklabels()) < 40  # every few rows are named


def test_what_reads_zero_is_gray_in_a_figure_of_signed_numbers():
    rows = [[0.0, -0.003, 0.003], [1.0, -1.0, 0.05]]
    heatmap = make_map("effects", rows, (["0", "1"], ["a", "b", "c"]), low=-1.0)
    figure = maps_figure(section("maps", choices=[choice_of(heatmap)]))
    picture = figure.axes[0].images[0]
    assert texts(figure.axes[0])[:3] == ["0", "0", "0"]
    grays = {tuple(color) for color in picture.to_rgba(picture.get_array())[0].tolist()}
    ((red, green, blue, _),) = grays
    assert red == pytest.approx(green, abs=0.002)
    assert green == pytest.approx(blue, abs=0.002)


def heads_of(figure):
    titled = {axes.get_title(loc="left"): axes for axes in figure.axes}
    return {title: axes for title, axes in titled.items() if title.startswith("head ")}


def test_the_trace_pictured_is_the_one_asked_for_else_the_first():
    whole = make_document(num_steps=10)["sections"][3]
    for wanted, title in ((["c", "a", "b"], "c a b →"), (["x"], "a a a →"), (None, "a a a →")):
        changes = {} if wanted is None else {"figure_input": wanted}
        figure = trace_figure(section_of(whole | changes))
        assert " ".join(figure.get_suptitle().split()).startswith(title)
        assert list(heads_of(figure)) == ["head 0.0", "head 0.1"]
    trace = next(each for each in whole["traces"] if each["input"] == ["c", "a", "b"])
    figure = trace_figure(section_of(whole | {"figure_input": ["c", "a", "b"]}))
    grid = heads_of(figure)["head 0.0"].images[0].get_array()
    assert grid[2, :3].tolist() == pytest.approx(trace["attention"][0]["rows"][2])
    assert grid.mask[2].tolist() == [False] * 3 + [True] * 3


def test_cross_attention_is_pictured_with_its_own_keys():
    figure = trace_figure(section_of(make_cross_document()["sections"][0]))
    axes = heads_of(figure)["head cross 0.0"]
    keys = ["the", "cat", "sleeps", "<end>"]
    assert [label.get_text() for label in axes.get_xticklabels()] == keys
    section = make_cross_document()["sections"][0]
    section["traces"][0]["attention"][1]["site"] = "decoder.layers.0.cross_attention.weights"
    assert "head cross 0.0" in heads_of(trace_figure(section_of(section)))


def test_hostile_words_are_drawn_as_they_are():
    bad = "$\\frac{$ <b> & \x00 \ud800 one\ntwo"
    document = make_kinds_document()
    bars, lines, maps, _ = document["sections"]
    bars |= {"title": bad, "groups": [bad, "$5 and $6"], "y_label": bad}
    lines |= {"x_label": bad, "series": [lines["series"][0] | {"name": bad}]}
    maps["choices"][0]["maps"][0] |= {"title": bad, "row_labels": [bad, "猫", "\N{GRINNING FACE}"]}
    files = figures.section_figures(content_of(document))
    for name in ("parts", "length", "maps"):
        root = xml.etree.ElementTree.fromstring(files[f"{name}.svg"])
        words = "".join(root.itertext())
        assert "frac{" in words
        assert "one⏎two" in words
    assert "$5 and $6" in "".join(xml.etree.ElementTree.fromstring(files["parts.svg"]).itertext())


def test_empty_charts_are_drawn_empty():
    none = [{"name": "", "x": [0, -1], "y": [None, float("inf")]}]
    for empty in (
        plain("lines", series=[], levels=[]),
        plain("bars", groups=[], series=[], levels=[]),
        plain("lines", series=none, levels=[], y_log=True),
    ):
        document = report_of(empty)
        del document["claims"]  # which a report may lack
        assert len(figures.section_figures(content_of(document))) == 2
    trace = make_section("trace", "", traces=[], figure="attention")
    assert figures.section_figures(content_of(report_of(trace))) == {}


def test_text_is_made_safe_in_one_place():
    assert safe_text("   ") == "␣␣␣"
    assert safe_text("a\tb\x1bc") == "a⇥b\ufffdc"
    assert re.fullmatch(r"(\\\$)+…?", safe_text("$" * 50, 20))


def test_the_legend_of_bars_names_the_series_in_order_and_stays_inside_the_figure():
    series = [{"name": name, "values": [0.5, 0.6]} for name in ("mini", "best", "words", "pairs")]
    levels = [{"name": "always the most frequent class", "y": 0.5}]
    (legend,) = bars_figure(section("bars", series=series, levels=levels)).legends
    names = [text.get_text() for text in legend.get_texts()]
    across = legend._ncols
    # Filled column after column, and read row after row.
    columns = [list(part) for part in np.array_split(names, across)]
    read = [
        column[row] for row in range(len(columns[0])) for column in columns if row < len(column)
    ]
    assert read == ["mini", "best", "words", "pairs", "always the most frequent class"]
    for length in (3, 28, 58):
        series = [{"name": f"{i} {'name ' * 20}"[:length], "values": [0.5, 0.6]} for i in range(5)]
        figure = bars_figure(section("bars", series=series))
        figure.draw_without_rendering()
        (legend,) = figure.legends
        assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_many_large_maps_are_drawn_large_and_four_a_row():
    names = list("abcdefghijkl")
    one = make_map("heads", [[math.nan] * 12] * 12, (names, names))  # numbers take long
    figure = maps_figure(section("maps", choices=[choice_of(*[one] * 5)]))
    figure.draw_without_rendering()
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == 5
    assert len({round(axes.get_position().x0, 2) for axes in maps}) == 4
    cell = min(axes.get_window_extent().width for axes in maps) / figure.dpi / 12
    assert cell >= 0.33  # inches, in which "0.12" is read


def test_points_steps_and_named_bands_are_drawn_as_such():
    x, y = [0, 1, 2], [0.2, 0.6, 0.4]
    ends = {"low": [0.1, 0.5, 0.3], "high": [0.3, 0.7, 0.5]}
    series = [
        {"name": "each", "x": x, "y": y, **ends, "style": "points"},
        {"name": "best", "x": x, "y": [0.2, 0.6, 0.6], "style": "steps"},
        {
            "name": "median",
            "x": x,
            "y": y,
            "bands": [{"name": "nine in ten", **ends}, {"name": "half", **ends}],
        },
    ]
    figure = lines_figure(section("lines", series=series, levels=[], x_log=False, from_zero=True))
    (axes,) = figure.axes
    lines = {each.get_label(): each for each in axes.lines}
    assert (lines["each"].get_linestyle(), lines["each"].get_marker()) == ("None", "o")
    assert sum(list(each.get_xdata()) in ([0, 0], [1, 1], [2, 2]) for each in axes.lines) == 3
    assert lines["best"].get_drawstyle() == "steps-post"
    (legend,) = figure.legends
    names = {text.get_text() for text in legend.get_texts()}
    assert names == {"each", "best", "median", "nine in ten", "half"}
    assert axes.get_ylim()[0] == 0.0


def test_titles_of_maps_are_broken_where_their_maps_end():
    name = "step at which it was first able to do its task"
    small = make_map(name, [[1.0]], (["1"], ["2"]), ("rank", "heads"))
    choices = [choice_of(small, small, small)]
    title = "A title that is far longer than so few maps are wide"
    figure = maps_figure(section("maps", title=title, choices=choices))
    figure.draw_without_rendering()
    titles = [
        axes._left_title.get_window_extent() for axes in figure.axes if axes.get_title(loc="left")
    ]
    assert all(one.x1 <= other.x0 for one, other in itertools.pairwise(titles))
    assert all(
        each.x1 <= figure.bbox.x1 for each in [*titles, figure._suptitle.get_window_extent()]
    )
