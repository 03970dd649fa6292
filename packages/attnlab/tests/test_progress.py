"""In a notebook whatever takes long shows one line that is rewritten."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

import attnlab
from attnlab import progress
from attnlab.progress import Bar, notebook_bar
from tests.random_models import new_model


@pytest.fixture
def shown(monkeypatch):
    """Pretend to be a notebook, and keep what it displays; nothing is waited for."""
    drawn = []

    class Handle:
        def update(self, bar):
            drawn.append(bar._repr_html_())

    def display(bar, *, display_id):
        drawn.append(bar._repr_html_())
        return Handle()

    package, inner = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=True)
    inner.display = display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    return drawn


def decoder():
    return new_model(vocab_size=4, d_model=8, num_heads=2, num_layers=1)


def corpus():
    return attnlab.Corpus(["ab", "abc"], encode=lambda text: [1] * len(text))


IDS = torch.tensor([[3, 1, 2, 0], [1, 2, 3, 0]])
LONG = {
    "run": (lambda out: attnlab.run("sorting", steps=2, most_judged=3), "sorting  2 of 2  loss "),
    "population": (
        lambda out: attnlab.train_population("sorting", [0], steps=2, layout="sequential"),
        "sorting  2 of 2  loss ",
    ),
    "sweep": (
        lambda out: attnlab.sweep("sorting", seeds=[0], rank=[1], steps=2, layout="sequential"),
        "sweep of sorting",
    ),
    "ablations": (lambda out: attnlab.ablate(decoder(), IDS), "ablations  2 of 2"),
    "controls": (lambda out: attnlab.pattern_effects(decoder(), IDS), "controls  14 of 14"),
    "patches": (
        lambda out: attnlab.patch_all(decoder(), IDS, IDS.flip(1), "heads"),
        "patches  2 of 2",
    ),
    "paths": (lambda out: attnlab.patch_paths(decoder(), IDS, IDS.flip(1)), "paths  2 of 2"),
    "document": (
        lambda out: attnlab.summarize_document(decoder(), IDS[:1], out=out),
        "attentions summarized  1 of 1",
    ),
    "corpus": (lambda out: attnlab.search_corpus(decoder(), corpus(), "previous"), "texts read  2"),
}


@pytest.mark.parametrize("name", LONG)
def test_whatever_takes_long_shows_a_bar_in_a_notebook(name, shown, tmp_path):
    compute, words = LONG[name]
    compute(tmp_path / "out")
    assert any(words in line for line in shown), shown[-3:]


def test_elsewhere_nothing_is_shown(capsys):
    assert notebook_bar("sorting") is None
    attnlab.ablate(decoder(), IDS)
    assert capsys.readouterr() == ("", "")


def test_the_bar_is_one_line_that_says_what_it_knows(shown):
    bar = Bar("<sorting>")
    assert repr(bar) == "<sorting>"
    bar.stage("seed 3")
    bar.step(1_000, 2_000, {"loss": 0.25, "accuracy": 0.5})
    bar.tell("one & all")
    assert repr(bar) == "<sorting>: seed 3  1,000 of 2,000  loss 0.2500  right 50.0%  one & all"
    assert shown[-1].startswith('<div><progress value="1000" max="2000"></progress>')
    assert "&lt;sorting&gt;" in shown[-1]
    assert "one &amp; all" in shown[-1]


def test_what_is_quick_shows_no_bar(shown, monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 1e9)
    attnlab.ablate(decoder(), IDS)
    assert shown == []


def test_in_ipythons_terminal_the_line_is_rewritten(shown, monkeypatch, capsys):
    sys.modules["IPython"].get_ipython = SimpleNamespace
    Bar("sorting").step(2, 2, {})
    assert shown == []
    assert capsys.readouterr().err == "\r\x1b[Ksorting  2 of 2\n"


def test_without_a_total_there_is_a_count_and_no_bar_that_would_never_end():
    bar = Bar("texts read")
    bar.count(20)
    assert bar._repr_html_() == '<div><span role="status">texts read  20</span></div>'
