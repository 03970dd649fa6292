"""What heads do is told by every picture of them; steps and answers of a program are shown."""

import html
import linecache
import re

import pytest
import torch

import attnlab
from attnlab import programs
from attnlab.draw.attention.recordings import to_patterns
from attnlab.errors import WrongUsage
from attnlab.programs import (
    Program,
    aggregate,
    apply,
    compile_program,
    indices,
    library,
    open_compiled,
    prove_program,
    select,
    steps_of,
    tokens,
)
from attnlab.programs.language import selector_width

before = selector_width(select(indices, indices, "<"))
first = aggregate(select(indices, 0, "=="), tokens)
LINES = {
    "0.0": 'before = selector_width(select(indices, indices, "<"))',
    "0.1": 'first = aggregate(select(indices, 0, "=="), tokens)',
}


@pytest.fixture
def compiled():
    def both(count, token):
        return f"{token}{count}"

    return compile_program(Program(apply(both, before, first), "ab", "both"), 3)


def test_a_recording_knows_what_each_head_does(compiled):
    with attnlab.record(compiled.model, "layers.*.attention.weights") as recording:
        compiled.logits(compiled.ids(["ba"]))
    assert sorted(recording.model["heads"].values()) == sorted(LINES.values())
    pattern = to_patterns(recording)[0]
    found = {f"0.{head}": pattern.label(head) for head in range(2)}
    assert found == recording.model["heads"]
    figure = attnlab.plot.head(recording, "0.1")
    assert found["0.1"][:40] in figure.axes[0].get_title(loc="left")


def test_an_opened_program_is_shown_with_its_answer_and_its_lines(compiled, tmp_path, monkeypatch):
    folder = compiled.save(tmp_path / "both")
    page = attnlab.show(folder, "ba").read_text()
    words = html.unescape(page)
    assert all(line in words for line in LINES.values())
    assert re.search(r"Answer\W.{,80}b0 b1", words, re.DOTALL)
    assert repr(attnlab.open(folder)).startswith("compiled both")
    with pytest.raises(WrongUsage, match="say what the program shall read"):
        attnlab.show(compiled)


def test_steps_have_their_values_and_a_notebook_shows_those_of_each_line_of_a_cell():
    """A selector has no row, and what it compares is not its value."""
    cell = """two = select(indices, indices - 2, "==")
found = aggregate(two, tokens, ".")
changed = found == "a"
"""
    linecache.cache["<cell 1>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell 1>")
    made = {name: getattr(programs, name) for name in programs.__all__}
    exec(compile(cell, "<cell 1>", "exec"), made)
    steps = steps_of(Program(before, "ab"), "ab")
    assert [(str(each), values) for each, values in steps] == [(before.words, [0, 1])]
    assert steps.tokens == ("a", "b")
    steps = steps_of(Program(made["changed"], "ab"), "aab")
    shown = [(line.number, values) for line, values in steps.lines().items()]
    assert shown == [(2, [".", ".", "a"]), (3, [False, False, True])]
    words = html.unescape(steps._repr_html_())
    assert 'found = aggregate(two, tokens, ".")' in words
    assert "indices - 2" not in words


@pytest.mark.parametrize(
    ("output", "alphabet", "head", "words"),
    [
        (library.has_earlier, "ab", "0.0", "2 comparisons added up, for `&`; counted by the"),
        (library.sort("ab").output, "ab", "0.1", "case 2 of 2: one comparison; counted"),
        (aggregate(library.same | library.before, indices), "ab", "1.0", "of pairs of values"),
        (library.induction("ab").output, "ab", "0.0", "the rank of the score added; BOS holds the"),
        (library.reverse("ab").output, "ab", "1.0", "the nearest number, -(key - query)²"),
        (library.average((0, 1)).output, (0, 1), "0.0", "all keys alike; gain"),
        (first, "ab", "0.0", "one comparison; gain 7.6; wrong keys weigh 0.001 at most"),
    ],
    ids=["and", "or, counted", "or, gathered", "best", "nearest", "all", "one"],
)
def test_explain_says_how_each_head_does_its_line(output, alphabet, head, words, tmp_path):
    compiled = compile_program(Program(output, alphabet), 3)
    assert words in compiled.ways[head]
    told = compiled.explain()
    assert f"head {head}  {compiled.heads[head]}\n            {compiled.ways[head]}\n" in told
    assert f"off by {compiled.error:.2g} at most, beside rounding" in told
    again = open_compiled(compiled.save(tmp_path / "model"))
    assert again.explain() == told


def test_what_explain_says_of_the_error_is_so():
    """The worst of all outputs is off by just that much: the bound is not padded."""
    program = library.fraction_so_far("ab", "a")
    compiled = compile_program(program, 5)
    worst = compiled.tolerance - prove_program(compiled, program).margin
    assert worst == pytest.approx(compiled.error)


def test_every_edit_finds_the_head_that_answers():
    """In abcab the last b is answered by what came after the first, which head 1.0 writes."""
    compiled = compile_program(library.induction("abc"), 6)
    model, ids, others = compiled.model, compiled.ids(["abcab"]), compiled.ids(["cbaca"])
    assert compiled("abcab")[-1] == "c"
    assert (attnlab.ablate(model, ids).effects < -0.9).all()
    found = attnlab.patch_paths(model, ids, others)
    assert found.shares.tolist() == pytest.approx([0, 1])  # head 0.0 alone, and head 1.0
    cut = attnlab.effect(model, ids, attnlab.ZeroHead(layer=1, head=0))
    assert cut.certificate
    assert int(cut.logits.after[0, -1].argmax()) != int(cut.logits.before[0, -1].argmax())


@pytest.mark.parametrize("position", [-1, 2])
def test_lenses_read_each_token_of_a_compiled_model(position):
    compiled = compile_program(library.induction("abc"), 6)
    model, ids = compiled.model, compiled.ids(["abcab"])
    logits = model(ids)[0, position]
    lens = attnlab.logit_lens(model, ids, position=position)
    torch.testing.assert_close(lens.logits[-1, 0], logits)
    shares = attnlab.direct_logits(model, ids, position=position)
    assert shares.error < 1e-9
    torch.testing.assert_close(shares.logits[0], logits.max())
    heads = attnlab.head_lens(model, ids, position=position)
    assert [str(head) for head in heads.heads] == ["head 0.0", "head 1.0"]
    assert int(heads.logits[1, 0].argmax()) == int(logits.argmax())
