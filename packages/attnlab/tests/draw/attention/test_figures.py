"""Figures of attention: axes, tokens, masked cells, scales, and files of every kind."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnlab.display import NumberTable
from attnlab.draw.attention import (
    Pattern,
    draw_difference,
    draw_head,
    draw_heads,
    draw_long_map,
    draw_measure,
    draw_trace,
    save_figure,
)
from attnlab.draw.attention.names import token_words
from attnlab.errors import WrongUsage
from attnlab.look.trace import HeadTrace, Step, Trace
from tests.sampling import sampled

from .checks import check_difference_is_centred, picture_of
from .patterns import ODD, make_layers, make_pattern, words


def names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def bar_words(figure):
    bar = next(axes for axes in figure.axes if axes.get_label() == "<colorbar>")
    return str(bar.get_ylabel()).replace("\n", " ")


def test_queries_go_down_and_keys_across_with_their_own_names():
    pattern = make_pattern(queries=3, keys=5, is_causal=False)
    pattern = replace(pattern, query_tokens=("x", "y", "z"))
    picture, axes = picture_of(draw_head(pattern, 1))
    assert np.allclose(picture.get_array(), pattern.weights[1])
    assert names(axes.yaxis) == ["x", "y", "z"]
    assert names(axes.xaxis) == list(words(5))
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")


def test_masked_cells_have_no_shade_and_the_hatch_behind_them_is_named():
    figure = draw_head(make_pattern())
    picture, axes = picture_of(figure)
    assert (
        np.ma.getmaskarray(np.ma.masked_invalid(picture.get_array())) == np.triu(np.ones((8, 8)), 1)
    ).all()
    assert axes.patch.get_hatch()
    assert picture.get_cmap()(np.nan)[3] == 0.0  # transparent: the hatch is seen
    assert bar_words(figure) == "weight; hatched: masked"
    assert bar_words(draw_head(make_pattern(is_causal=False))) == "weight"


def test_a_hatched_cell_and_a_weight_of_zero_look_different(tmp_path):
    weights = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    blocked = torch.tensor([[False, True], [False, False]])
    figure = draw_head(Pattern("weights", weights, ("a", "b"), ("c", "d"), blocked))
    _, axes = picture_of(figure)
    figure.set_dpi(100)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[::-1]

    def colours(row, column):
        x0, y0 = axes.transData.transform((column - 0.3, row + 0.3)).astype(int)
        x1, y1 = axes.transData.transform((column + 0.3, row - 0.3)).astype(int)
        return len(np.unique(pixels[y0:y1, x0:x1].reshape(-1, 4), axis=0))

    assert colours(1, 1) == 1
    assert colours(0, 1) > 3


def test_a_difference_is_centred_on_zero_and_its_masked_cells_are_hatched():
    one, other = make_pattern(seed=1), make_pattern(seed=2)
    check_difference_is_centred(one, other)
    figure = draw_difference(one, other)
    picture, _ = picture_of(figure)
    change = np.asarray(other.weights[0] - one.weights[0])
    assert np.allclose(np.tril(change), np.nan_to_num(picture.get_array()), atol=1e-6)
    assert picture.norm.vmax == -picture.norm.vmin == pytest.approx(np.abs(change).max())
    assert bar_words(figure) == "difference of weights; hatched: masked"
    same, _ = picture_of(draw_difference(one, one))
    assert (same.norm.vmin, same.norm.vmax) == (-1.0, 1.0)


def test_recordings_of_different_tokens_are_named_by_both():
    one = make_pattern(tokens=["a", "b"] + ["c"] * 6)
    other = make_pattern(tokens=["a", "x"] + ["c"] * 6)
    _, axes = picture_of(draw_difference(one, other))
    assert names(axes.xaxis)[:3] == ["a", "b/x", "c"]


def test_the_scale_is_as_asked_and_what_goes_beyond_is_said():
    pattern = make_pattern(is_causal=False)
    picture, _ = picture_of(draw_head(pattern))
    assert picture.norm.vmax == pytest.approx(float(pattern.weights[0].max()))
    figure = draw_head(pattern, high=0.1)
    assert "beyond the end: as at the end" in bar_words(figure)
    figure = draw_head(pattern, scale="root", high=1.0)
    assert picture_of(figure)[0].norm(0.25) == pytest.approx(0.5)
    assert "shade: square root" in bar_words(figure)
    with pytest.raises(WrongUsage, match="scale must be 'linear' or 'root'; got 'log'"):
        draw_head(pattern, scale="log")
    with pytest.raises(WrongUsage, match="above 0; got -1"):
        draw_head(pattern, high=-1)


def test_many_tokens_are_thinned_at_even_steps_and_the_axis_says_so():
    pattern = make_pattern(heads=1, queries=300)
    _, axes = picture_of(draw_head(pattern))
    places = [int(tick) for tick in axes.get_xticks()]
    (step,) = set(np.diff(places))
    assert names(axes.xaxis)[1] == f"{step}  w{step}"
    assert axes.get_xlabel() == f"key (place and name of every {step}th)"


def test_more_cells_than_dots_are_pooled_and_the_title_says_so():
    pattern = make_pattern(heads=1, queries=1_500)
    picture, axes = picture_of(draw_head(pattern))
    assert picture.get_array().shape == (750, 750)
    assert "each dot the largest of 2 × 2" in axes.get_title(loc="left")
    own = np.asarray(pattern.weights[0])
    assert picture.get_array()[700, 3] == own[1400:1402, 6:8].max()


def test_all_heads_stand_at_their_layer_and_head():
    patterns = make_layers(3, 4)
    figure = draw_heads(patterns)
    picture, axes = picture_of(figure)
    mosaic = np.ma.filled(picture.get_array(), np.nan)
    assert mosaic.shape == (24, 32)
    for layer in range(3):
        for head in range(4):
            tile = mosaic[layer * 8 : layer * 8 + 8, head * 8 : head * 8 + 8]
            assert np.allclose(np.nan_to_num(tile), patterns[layer].weights[head], atol=1e-7)
    assert names(axes.yaxis) == ["0", "1", "2"]
    assert "shade: square root; hatched: masked" in bar_words(figure)


def test_a_measure_below_zero_has_two_colours_and_one_above_has_one():
    picture, _ = picture_of(draw_measure([[1.0, -3.0], [2.0, 0.0]], label="effect"))
    assert (picture.norm.vmin, picture.norm.vmax) == (-3.0, 3.0)
    picture, axes = picture_of(
        draw_measure([[1.0, float("nan")]], label="entropy (nats)", layers=["first"])
    )
    assert (picture.norm.vmin, picture.norm.vmax) == (0.0, 1.0)
    assert names(axes.yaxis) == ["first"]
    refused = (([1.0], "layer, head"), ([[float("nan")]], "at least one"), ([[]], "layer, head"))
    for values, words_of_error in refused:
        with pytest.raises(WrongUsage, match=words_of_error):
            draw_measure(values, label="x")


def test_thirty_thousand_tokens_are_a_map_whose_axes_count_tokens():
    values = np.tril(np.random.default_rng(0).random((512, 512))).astype(np.float32)
    length = 512 * 59 - 20
    figure = draw_long_map(values, num_queries=length, num_keys=length, label="largest weight")
    picture, axes = picture_of(figure)
    assert axes.get_xlim() == (0, length)
    assert axes.get_ylim() == (length, 0)
    assert picture.get_extent() == [0, 512 * 59, 512 * 59, 0]
    assert names(axes.xaxis)[1] == "5,000"
    assert names(axes.yaxis)[1] == "5,000"
    assert "each dot 59 × 59 weights" in axes.get_title(loc="left")
    for options, words_of_error in [
        ({"num_queries": 100}, "more than its 100 tokens"),
        ({"num_queries": 600, "num_keys": 600}, "600 tokens in equal squares of 2 make 300"),
        ({"blocked": "cusal"}, "got 'cusal'"),
        ({"blocked": np.ones((2, 2))}, "blocked must be"),
        ({"high": 0.0}, "above 0; got 0.0"),
    ]:
        with pytest.raises(WrongUsage, match=words_of_error):
            draw_long_map(values, **{"num_queries": length, "num_keys": length, **options})


def outside(figure):
    """The words of a figure that reach beyond its edges."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    FigureCanvasAgg(figure).draw()
    whole = figure.bbox.padded(1)
    return [
        each.get_text()
        for each in figure.findobj(Text)
        if each.get_visible() and each.get_text()
        if whole.count_contains(each.get_window_extent().corners()) < 4
    ]


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (3, 2)])
def test_the_words_beside_the_bar_are_whole_however_few_heads_there_are(layers, heads):
    figure = draw_heads(make_layers(layers, heads))
    assert "weight; shade: square root; hatched: masked" in bar_words(figure)
    assert outside(figure) == []
    assert outside(draw_head(make_pattern(queries=4), scale="root", high=0.3)) == []


def test_long_maps_hatch_what_nobody_may_look_at_and_one_large_weight_blanks_nothing():
    places = 8 * np.arange(64)
    hidden = places > places[:, None]
    weights, size = np.tril(np.full((64, 64), 1e-4)), {"num_queries": 512, "num_keys": 512}
    weights[0, 0] = 1.0
    for blocked in ("causal", hidden):
        figure = draw_long_map(weights, **size, blocked=blocked)
        picture, _ = picture_of(figure)
        assert (np.isnan(np.ma.filled(picture.get_array(), np.nan)) == hidden).all()
        assert "hatched: masked" in bar_words(figure)
    assert float(picture.norm(1e-4)) == pytest.approx(1.0)
    assert "beyond the end: as at the end" in bar_words(figure)
    assert picture_of(draw_long_map(weights, **size, high=1.0))[0].norm.vmax == 1.0
    even, _ = picture_of(draw_long_map([[1e-4, 3e-4] * 25], num_queries=1, num_keys=500))
    assert even.norm.vmax == pytest.approx(3e-4)
    seen, _ = picture_of(
        draw_long_map(np.ones((4, 4)), num_queries=8, num_keys=8, blocked="causal")
    )
    assert not np.ma.getmaskarray(np.ma.masked_invalid(seen.get_array())).any()


def make_trace(num_candidates=4):
    letters = [chr(97 + i) for i in range(num_candidates)]
    chances = [0.7 if i == 1 else 0.3 / (num_candidates - 1) for i in range(num_candidates)]
    steps = [Step(position, letters, chances, "b") for position in (1, 2)]
    rows = [[1.0], [0.5, 0.5], [0.2, 0.3, 0.5]]
    head = HeadTrace("layers.0.attention.weights", 1, rows)
    return Trace(["a", "c"], ["a", "c", "b", "b"], steps, [head])


def test_a_trace_shows_steps_choices_chances_and_heads():
    figure = draw_trace(make_trace())
    steps, axes = picture_of(figure)
    assert np.allclose(steps.get_array(), [[0.1, 0.7, 0.1, 0.1]] * 2)
    assert names(axes.yaxis) == ["1.  after c", "2.  after b"]
    assert [text.get_text() for text in axes.texts] == ["0.700", "0.700"]
    assert {patch.get_x() for patch in axes.patches} == {1 - 0.47}
    head, head_axes = picture_of(figure, 1)
    assert np.isnan(np.ma.filled(head.get_array(), np.nan)).sum() == 3
    assert head_axes.get_title(loc="left") == "head 0.1"
    # Of many candidates the chosen one is kept, and the rest counted.
    _, axes = picture_of(draw_trace(make_trace(26)))
    assert "b" in names(axes.xaxis)
    assert len(names(axes.xaxis)) == 12
    assert axes.get_title(loc="left").endswith("14 less likely ones left out")
    assert draw_trace(replace(make_trace(), steps=[], attention=[])) is not None


@pytest.mark.parametrize("kind", sampled(["svg", "png", "pdf"], 1))
def test_odd_tokens_are_drawn_into_every_kind_of_file(kind, tmp_path):
    pattern = make_pattern(heads=1, queries=len(ODD), tokens=ODD)
    paths = [save_figure(draw_head(pattern), tmp_path / f"{n}.{kind}") for n in range(2)]
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])
    if kind == "svg":
        text = first.decode()
        assert "שלום" in text
        assert "&lt;script&gt;" in text
        assert not re.search("<script", text)
    with pytest.raises(WrongUsage, match=r"\.png, \.svg or \.pdf; got 'map.jpg'"):
        save_figure(draw_head(pattern), tmp_path / "map.jpg")


def test_letters_that_no_font_has_are_told_by_their_code(monkeypatch):
    assert "⟨" in token_words("\U00011f02")
    monkeypatch.setattr(
        "attnlab.draw.attention.names._letters", lambda: frozenset(range(128)) | {ord("␣")}
    )
    assert [token_words("你"), token_words(" é")] == ["⟨4F60⟩", "␣⟨E9⟩"]
    monkeypatch.undo()
    assert [token_words(token) for token in ("", " a", "\t", "$x$", "a" * 20)] == [
        "∅",
        "␣a",
        "⇥",
        r"\$x\$",
        "a" * 15 + "…",
    ]


def pattern_of(*axes, queries, keys=3, blocked=None):
    return Pattern("w", torch.ones(*axes), words(queries), words(keys), blocked)


def test_a_result_with_tables_is_drawn_with_its_own_rows_and_columns():
    class Result:
        def number_tables(self):
            rows = [[0.5, float("nan")], [-2.0, 1.0]]
            return [
                NumberTable("Heads", "share", ["0", "1"], ["a", "b"], "layer", "position", rows)
            ]

    figure = draw_measure(Result())
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b"]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("layer", "position")
    assert axes.images[0].get_clim() == (-2.0, 2.0)
    with pytest.raises(WrongUsage, match="say what the numbers are"):
        draw_measure([[1.0]])


def test_a_head_is_named_as_in_an_edit_or_as_pages_print_it():
    layers = make_layers(2, 3)
    wanted = layers[1].weights[2]
    for named in (
        draw_head(layers, "1.2"),
        draw_head(layers, 1, 2),
        draw_head(layers, layer=1, head=2),
        draw_head(layers, 2, layer=1),
        draw_head(layers, head="1.2"),
        draw_head(layers, 2, site="layers.1.attention.weights"),
    ):
        picture, axes = picture_of(named)
        assert np.allclose(np.nan_to_num(np.ma.filled(picture.get_array(), 0)), wanted)
        assert axes.get_title(loc="left") == "Head 1.2"
    (axes, *_) = draw_difference(layers, layers, 1, 2).axes
    assert axes.get_title(loc="left").startswith("Head 1.2")


def head(*place, **named):
    return lambda: draw_head(make_layers(2, 3), *place, **named)


NAMED = 'a head is named "0.1"'


@pytest.mark.parametrize(
    ("call", "words_of_error"),
    [
        (head(site="layers.1.atention.weights"), "did you mean 'layers.1.attention.weights'"),
        (head(0, 1, 2), NAMED),
        (head("0.1", 1), NAMED),
        (head(1.5), NAMED),
        (head(0, 1, layer=0), NAMED),
        (head((0, 1)), r"layer=0, head=1; got \(0, 1\)\.$"),
        (head(5, 0), "there is no layer 5; known: 0, 1"),
        (head(0, 9), "has heads 0 to 2; got 9"),
        (head(1), "there are 2 attentions; name the head, such as '0.1'"),
        (lambda: draw_head(make_pattern(), "0.3"), "no head 0.3; the layer has 3 heads"),
        (
            lambda: draw_difference(make_pattern(queries=4), make_pattern(queries=5)),
            "only maps of one site and shape",
        ),
        (lambda: pattern_of(1, 2, 3, queries=1), "2 places on the query axis; got 1 tokens"),
        (lambda: pattern_of(2, 3, queries=2), r"must be \(head, query, key\)"),
        (lambda: pattern_of(1, 0, 3, queries=0), "none of them 0"),
        (lambda: pattern_of(1, 2, 3, queries=2, blocked=torch.ones(3, 2)), "blocked must be"),
        (lambda: pattern_of(1, 2, 3, queries=2, blocked="cusal"), "'causal' or None; got 'cusal'"),
        (lambda: draw_trace(make_trace(), heads=[("layers.9", 0)]), r"no head \('layers.9', 0\)"),
        (lambda: draw_trace({"weights": 1}), "draws the result of.*draw_heads or write_view"),
        (lambda: draw_trace(3), "draws the result of.*got an int"),
        (lambda: draw_trace([]), "draws the result of.*a list"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(call, words_of_error):
    with pytest.raises(WrongUsage, match=words_of_error):
        call()
