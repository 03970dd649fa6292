"""Planted faults: the mistakes that block-wise summaries are prone to, each noticed by a named
test."""

import importlib
import inspect

import pytest
import torch

from attnlab.look.summaries import question, row_blocks, summary, zoom
from attnlab.native import attention, compiler_name
from tests.look.summaries import test_summarize as summaries
from tests.look.summaries import test_zoom as zooms

SINGLE = torch.float32


def cases(way: str, kind: str | None = None):
    return lambda monkeypatch: summaries.check_cases(way, SINGLE, 1e-5, range(20), kind)


def fits(way: str):
    return lambda monkeypatch: summaries.test_many_row_blocks_and_ragged_cells_fit_together(way)


def dead(way: str):
    return lambda monkeypatch: summaries.test_a_query_that_may_look_at_nothing_gets_zeros(way)


def ties(way: str):
    return lambda monkeypatch: summaries.test_of_equal_weights_the_first_keys_are_named_first(way)


# What is wrong, the old snippet of the C++, the new one, and what notices it.
COMPILED = [
    (
        "a tile ends one key early",
        "end = std::min(std::min(w.keys, (tile + 1) * TILE), s.limit), start",
        "end = std::min(std::min(w.keys, (tile + 1) * TILE), s.limit) - 1, start",
        cases("native"),
    ),
    (
        "a tile on the diagonal counts as seen whole",
        "end - 1 > low + w.right",
        "end - 1 > high + w.right",
        cases("native", "causal"),
    ),
    (
        "the diagonal itself is blocked",
        "distance >= -R(w.right)",
        "distance > -R(w.right)",
        cases("native", "causal"),
    ),
    (
        "a tile of which only some can be seen is left out",
        "if (any && !all) return SOME;",
        "if (any && !all) return NONE;",
        cases("native", "boolean"),
    ),
    (
        "a tile is left out when its first query sees nothing",
        "(w.mask_query_step ? rows : 1)",
        "1",
        cases("native", "sparse"),
    ),
    (
        "the ragged last cell is divided by the full count",
        "std::min(w.key_cell, w.keys - c * w.key_cell)",
        "w.key_cell",
        fits("native"),
    ),
    (
        "the ragged last row of cells is divided by the full count",
        "R(high * std::min",
        "R(w.query_cell * std::min",
        fits("native"),
    ),
    (
        "the largest of a masked tile is that before the mask",
        "if (is_banded || sight == SOME)",
        "if (false)",
        cases("native", "boolean"),
    ),
    (
        "what is equal pushes down what was before it",
        "best[i] = x > old ? in : old;\n    places[i] = x > old ? place : old_place;",
        "best[i] = x > old ? in : old;\n    places[i] = x >= old ? place : old_place;",
        ties("native"),
    ),
    (
        "of equal keys the last are listed",
        "equal[lane]++ >= w.top",
        "equal[lane]++ < GROUP",
        ties("native"),
    ),
    (
        "a group is left out when not all queries reach it",
        "!= ALL_LANES;",
        "== 0;",
        cases("native"),
    ),
    (
        "runs of lanes are folded one lane off",
        "b = choose(is_first, x[i + step], x[i])",
        "b = choose(is_first, x[i], x[i])",
        fits("native"),
    ),
    ("two blocks share a row", "row += LANES)", "row += LANES - 1)", fits("native")),
    (
        "the largest of a row is that of its last group",
        "largest[v] = larger(largest[v], groups[g * VECTORS + v]);",
        "largest[v] = groups[g * VECTORS + v];",
        cases("native"),
    ),
    (
        "an added mask is not brought to base 2",
        "R(bias * R(1.4426950408889634))",
        "bias",
        cases("native", "added"),
    ),
    (
        "entropy forgets the mean score",
        "log_total - sums.energy[i] / total",
        "log_total",
        cases("native"),
    ),
    (
        "a dead row divides by its zero",
        "bool is_dead = i >= rows || sums.total[i] == 0;",
        "bool is_dead = i >= rows;",
        dead("native"),
    ),
    (
        "sums of cells are not cleared between blocks",
        "s.cell_sums[c] = V{}, s.cell_largest[c]",
        "s.cell_largest[c]",
        fits("native"),
    ),
]

IN_PYTHON = [
    (
        "the diagonal block is not masked",
        question.Question,
        "scores",
        "(distance <= self.left) & (distance >= -self.right)",
        "distance <= self.left",
        cases("torch", "causal"),
    ),
    (
        "keys that a block can see are cut off",
        question.Question,
        "seen",
        "queries.stop + self.mask_offset + self.right",
        "queries.start + self.mask_offset + self.right",
        cases("torch", "causal"),
    ),
    (
        "the last key that a mask shows is cut off",
        row_blocks,
        "_narrowed",
        "int(seen[-1]) + 1",
        "int(seen[-1])",
        cases("torch", "padding"),
    ),
    (
        "the ragged last cell has the full count",
        row_blocks,
        "cell_counts",
        ".clamp(max=cell[1])",
        ".clamp(min=cell[1], max=cell[1])",
        fits("torch"),
    ),
    (
        "a tie is left to topk",
        summary,
        "top_of",
        "if bool(tied.any()):",
        "if False:",
        ties("torch"),
    ),
    (
        "top keys are counted from the block",
        summary,
        "row_statistics",
        "keys + first_key",
        "keys",
        cases("torch", "window"),
    ),
    (
        "a tile starts one key late",
        zoom.Zoom,
        "tile",
        "slice(column * reach,",
        "slice(column * reach + 1,",
        lambda monkeypatch: zooms.check_tiles(40, 40, 16, None),
    ),
    (
        "only the last block of products is kept",
        importlib.import_module("attnlab.look.summaries.summarize"),
        "head_similarity",
        "products[group] +=",
        "products[group] =",
        lambda monkeypatch: zooms.test_similarities_are_those_of_the_explicit_matrices(
            "causal", monkeypatch
        ),
    ),
    (
        "blocks that nobody sees are computed",
        question.Question,
        "seen",
        "queries.stop + self.mask_offset + self.right",
        "self.num_keys",
        summaries.test_blocks_in_which_nothing_can_be_seen_are_not_computed,
    ),
]


def fails(check, monkeypatch) -> bool:
    try:
        check(monkeypatch)
    except (AssertionError, RuntimeError, IndexError, ValueError):
        return True
    return False


@pytest.mark.parametrize(
    ("name", "old", "new", "check"), COMPILED, ids=[row[0] for row in COMPILED]
)
def test_a_fault_planted_in_the_compiled_rows_shows(name, old, new, check, monkeypatch):
    if compiler_name() is None:
        pytest.skip("there is no C++ compiler here")
    compiled = attention.compiled

    def broken(source, **how):
        assert source.count(old) == 1, f"{name}: its place is there {source.count(old)} times"
        return compiled(source.replace(old, new), **how)

    monkeypatch.setenv("CXXFLAGS", "-O0")
    monkeypatch.setattr(attention, "compiled", broken)
    library = attention.library.__wrapped__()
    assert not isinstance(library, str), library
    monkeypatch.setattr(attention, "library", lambda: library)
    assert fails(check, monkeypatch)


@pytest.mark.parametrize(
    ("name", "owner", "function", "old", "new", "check"),
    IN_PYTHON,
    ids=[row[0] for row in IN_PYTHON],
)
def test_a_fault_planted_in_python_shows(name, owner, function, old, new, check, monkeypatch):
    right = getattr(owner, function)
    source = inspect.cleandoc("\n" + inspect.getsource(inspect.unwrap(right)))
    assert source.count(old) == 1, f"{name}: its place is there {source.count(old)} times"
    module = inspect.getmodule(inspect.unwrap(right))
    names = dict(vars(module))
    exec(source.replace(old, new), names)
    for place in {owner, module}:
        if getattr(place, function, None) is right:
            monkeypatch.setattr(place, function, names[function])
    for user in (row_blocks, zoom, zooms):
        if getattr(user, function, None) is right:
            monkeypatch.setattr(user, function, names[function])
    assert fails(check, monkeypatch)
