"""What heads do is told by every picture of them; steps and answers of a program are shown."""

import html
import re

import pytest

import attnlab
from attnlab.draw.attention.recordings import to_patterns
from attnlab.errors import WrongUsage
from attnlab.programs import (
    Program,
    aggregate,
    apply,
    compile_program,
    indices,
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


def test_a_recording_knows_what_each_head_does(compiled, tmp_path):
    with attnlab.record(compiled.model, "layers.*.attention.weights") as recording:
        compiled.logits(compiled.ids(["ba"]))
    assert sorted(recording.model["heads"].values()) == sorted(LINES.values())
    pattern = to_patterns(recording)[0]
    found = {f"0.{head}": pattern.label(head) for head in range(2)}
    assert found == recording.model["heads"]
    figure = attnlab.plot.head(recording, "0.1")
    assert found["0.1"][:40] in figure.axes[0].get_title(loc="left")
    file = attnlab.plot.save(figure, tmp_path / "head.svg")
    assert attnlab.open(file).patterns[0].labels == pattern.labels


def test_an_opened_program_is_shown_with_its_answer_and_its_lines(compiled, tmp_path, monkeypatch):
    folder = compiled.save(tmp_path / "both")
    page = attnlab.show(folder, "ba").read_text()
    words = html.unescape(page)
    assert all(line in words for line in LINES.values())
    assert re.search(r"Answer\W.{,80}b0 b1", words, re.DOTALL)
    assert repr(attnlab.open(folder)).startswith("compiled both")
    with pytest.raises(WrongUsage, match="say what the program shall read"):
        attnlab.show(compiled)


def test_every_step_has_its_values_on_an_example(compiled):
    steps = steps_of(Program(before, "ab"), "ab")
    assert [(str(each), values) for each, values in steps] == [(before.words, [0, 1])]
    assert steps.tokens == ("a", "b")
    assert "<td" in steps._repr_html_()
