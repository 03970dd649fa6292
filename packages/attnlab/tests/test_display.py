"""Whatever a public function gives back shows itself in a few lines and a small table."""

import copy
import inspect
import re
import sys
import types
import typing
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from torch import nn

import attnlab
from attnlab.configs import Config
from attnlab.design import copy_first
from attnlab.display import Card, card_text, displayed, frame, short
from attnlab.draw.sections import ReportContent
from attnlab.edits import Edit
from attnlab.edits.effects import assess
from attnlab.errors import CouldNotRun
from attnlab.experiments import notebook
from attnlab.experiments.claims import Claim
from attnlab.experiments.proofs import PopulationProof
from attnlab.experiments.report import Report
from attnlab.experiments.sweeps.outcome import SweepOutcome
from attnlab.experiments.tune.tuner import Search
from attnlab.look.census import write_headvis
from attnlab.look.questions import Continuation
from attnlab.look.recording.tokens import TokenSides
from attnlab.look.trace import HeadTrace, Step, Trace
from attnlab.programs import compile_program, library
from tests.random_models import new_model

EVIL = "<script>alert(1)</script>\x1b[31m\u202e"
NAMES = [EVIL, *(f"word {number}" for number in range(19))]


@cache
def model():
    return new_model(vocab_size=20, max_length=64, d_model=24, num_heads=12, num_layers=4)


IDS = torch.arange(60).reshape(3, 20) % 20
ZERO_HEAD = attnlab.ZeroHead(layer=0, head=0)
CONTENT = ReportContent(title="", subtitle="", facts=[], sections=[])


@cache
def compiled():
    return compile_program(library.hist(NAMES), 2)


def report():
    long = (EVIL * 9, EVIL * 9, "x" * 999)
    claims = tuple(Claim(f"claim {number}", *long, number > 3 or None) for number in range(40))
    return Report(EVIL, {"seed": 1, "settings": {"all": list(range(9999))}}, claims, [], CONTENT)


SHORT = {"steps": 2, "layout": "sequential", "most_judged": 5}


@cache
def population():
    return attnlab.train_population("sorting", seeds=range(3), **SHORT)


@cache
def sweep():
    return attnlab.sweep("sorting", seeds=range(2), rank=[1, 2], **SHORT)


def search():
    whole = sweep().outcome
    cells = [replace(whole.grid[0], fields={EVIL: number}) for number in range(99)]
    return Search(SweepOutcome(whole.axes, cells, whole.seeds, whole.results), sweep().report)


def recording():
    with attnlab.record(model(), "*", vocabulary=NAMES) as found:
        model()(IDS)
    return found


def trace():
    steps = tuple(
        Step(number, tuple(NAMES), (0.05,) * 20, NAMES[number % 20]) for number in range(50)
    )
    return Trace((EVIL,) * 50, (EVIL,) * 100, steps, (head_trace(),) * 300)


def head_trace():
    rows = tuple((1.0,) * number for number in range(1, 99))
    return HeadTrace("layers.0.attention.weights", 0, rows, (EVIL,) * 99)


def certificate():
    places = [(layer, head) for layer in range(4) for head in range(9)]
    edits = [attnlab.edits.ScaleHead(layer=layer, head=head, factor=2.0) for layer, head in places]
    edits.append(attnlab.edits.ZeroSite(site="*feed_forward.output"))
    with attnlab.edit(model(), *edits) as found:
        model()(IDS)
    return found


def speed():
    with attnlab.speed(matrix="default") as choice:
        return choice


def question():
    return Continuation(model(), IDS[:1], 3, NAMES)


@cache
def document():
    return attnlab.summarize_document(
        copy.deepcopy(model()).double(), IDS[:1], out=Path(mkdtemp()) / "book"
    )


@cache
def found():
    rows = [(NAMES[number % 20] * 2, [number % 20, 3, 4]) for number in range(30)]
    texts = attnlab.Corpus([text for text, _ in rows], encode=lambda text: [len(text) % 20, 3, 4])
    return attnlab.search_corpus(model(), texts, "previous")


def census():
    texts = [f"{number % 20} 3 4" for number in range(30)]
    encode = lambda text: list(map(int, text.split()))  # noqa: E731
    corpus = attnlab.Corpus(texts, encode=encode, vocabulary=NAMES)
    return attnlab.census(model(), corpus, effects=0)


def editable_view():
    """A page with a widget that is no widget: anywidget may not be installed."""

    class Widget(types.SimpleNamespace):
        def observe(self, hear, name):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebook, "_widget_class", lambda: lambda **given: Widget(edits=[], **given))
        return notebook.EditableView(EVIL * 9999)


@cache
def headvis():
    folder = Path(mkdtemp()) / "tree"
    write_headvis(census(), model(), folder)
    return attnlab.open(folder)


EXAMPLES = {
    "Tenths": lambda: census().deciles("0.0"),
    "Assessed": lambda: assess(torch.rand(40, 12)),
    "Attention": lambda: attnlab.attend(*[torch.rand(2, 99, 8)] * 3),
    "Attribution": lambda: attnlab.direct_logits(model(), IDS),
    "Both": lambda: attnlab.effect(model(), IDS, ZERO_HEAD).logits,
    "CellOutcome": lambda: sweep().cells[0],
    "Census": census,
    "Certificate": certificate,
    "Circuits": lambda: attnlab.circuits(model()),
    "Compositions": lambda: attnlab.circuits(model(), ["0", "1"]).compositions(),
    "RecordingComparison": lambda: recording().compare(recording()),
    "Document": document,
    "EditableView": editable_view,
    "Effect": lambda: attnlab.effect(model(), IDS, ZERO_HEAD, sites="*", num_tokens=2),
    "Example": lambda: found().examples(found().heads[0])[0],
    "Fork": lambda: attnlab.fork(question(), ZERO_HEAD),
    "CompiledProgram": compiled,
    "ModelProof": lambda: attnlab.prove(compiled(), library.hist(NAMES)),
    "PopulationProof": lambda: PopulationProof(
        EVIL, dict.fromkeys(NAMES * 9, attnlab.prove(compiled(), library.hist(NAMES)))
    ),
    "CorpusSearch": found,
    "Generation": lambda: attnlab.generate(model(), IDS, 5),
    "Examples": lambda: census().examples("0.0"),
    "HeadVis": headvis,
    "HeadVisExample": lambda: headvis().examples("0.0")[0],
    "HeadLens": lambda: attnlab.head_lens(model(), IDS),
    "HeadSources": lambda: attnlab.why(model(), IDS[:1], head="0.0"),
    "HeadTrace": head_trace,
    "History": lambda: population().history,
    "Ablation": lambda: attnlab.ablate(model(), IDS),
    "Lens": lambda: attnlab.logit_lens(model(), IDS, vocabulary=NAMES),
    "NumberTable": lambda: attnlab.ablate(model(), IDS).number_tables()[0],
    "PatternEffects": lambda: attnlab.pattern_effects(
        model(), IDS.tril(-1), parts="layers.0.attention"
    ),
    "SweepOutcome": lambda: sweep().outcome,
    "PassInputs": lambda: question().pass_inputs(),
    "Patched": lambda: attnlab.patch_all(model(), IDS, IDS.flip(1), "heads"),
    "Population": population,
    "Proof": lambda: attnlab.prove(copy_first(tolerance=1e-3)),
    "Question": question,
    "Recording": recording,
    "Report": report,
    "ScoreTerms": lambda: attnlab.why(model(), IDS[:1], head="0.0", key=0),
    "Search": search,
    "NotebookPage": lambda: attnlab.draw.view.page.NotebookPage(EVIL * 9999),
    "Speed": speed,
    "TokenSides": lambda: TokenSides(NAMES * 99, NAMES * 99),
    "Summary": lambda: attnlab.Summarize().of_weights(torch.full((2, 3, 9, 9), 1 / 9)),
    "Sweep": sweep,
    "Trace": trace,
    "Trained": lambda: population().trained(0),
}

# Values of a line or less, which say all that they are; modules print as PyTorch prints them.
SMALL = {"Claim", "Difference", "Interval", "PatchTarget", "Problem"}
SMALL |= {"RunReader", "ProblemDescription"}


def classes_in(annotation):
    """Return the classes of attnlab that an annotation names."""
    inner = typing.get_args(annotation)
    if inner:
        return set().union(*map(classes_in, inner))
    is_ours = inspect.isclass(annotation) and annotation.__module__.startswith("attnlab.")
    return (
        {annotation} if is_ours and not issubclass(annotation, nn.Module | Config | Edit) else set()
    )


def given_back(function):
    annotation = inspect.signature(function).return_annotation
    if isinstance(annotation, str):  # names that are imported for types alone are not there
        known = vars(sys.modules[function.__module__])
        return set().union(
            *(classes_in(known.get(word)) for word in re.findall(r"\w+", annotation))
        )
    return classes_in(annotation)


def results():
    """Return what public functions give back."""
    functions = [getattr(attnlab, name) for name in attnlab.__all__]
    first = set().union(*(given_back(each) for each in functions if inspect.isfunction(each)))
    second = set()
    for kind in first:
        for name, member in inspect.getmembers(kind):
            member = getattr(member, "fget", None) or getattr(member, "func", None) or member
            if (
                not name.startswith("_")
                and inspect.isroutine(member)
                and hasattr(member, "__globals__")
            ):
                second |= given_back(member)
    return {kind.__name__ for kind in first | second}


def test_a_long_sentence_is_folded_at_the_prompt_and_not_cut():
    caution = "  caution: " + "clean and corrupted barely differ; " * 4 + "choose others."
    text = card_text(Card("Patched", lines=[caution]), 15)
    assert " ".join(text.split()) == " ".join(f"Patched {caution}".split())
    assert max(map(len, text.splitlines())) <= 100
    assert all(line.startswith("      ") for line in text.splitlines()[2:])


def test_the_numbers_of_many_heads_fit_the_prompt_and_name_their_unit():
    ablation = attnlab.ablate(model(), IDS, metric="probability")
    text = repr(ablation)
    assert "…" not in text
    words = re.search(r"columns\s+are heads, numbers in units of ([\de.-]+)", text)
    unit = float(words[1])
    rows = [line.split() for line in text.splitlines() if re.match(r"  +[0-3]  ", line)]
    assert len(rows) == 4
    shown = torch.tensor([[float(cell) for cell in row[1:]] for row in rows]) * unit
    assert torch.allclose(shown, ablation.table().float(), atol=0.006 * unit)


def test_what_is_no_model_says_where_one_is():
    for call in (attnlab.record, attnlab.ablate, attnlab.effect):
        with pytest.raises(attnlab.AttnlabError, match=r"got a Report, whose model is its \.model"):
            call(report(), "cab")
        with pytest.raises(attnlab.AttnlabError, match=r"attnlab.load\('runs/x'\) opens a model"):
            call("runs/x", "cab")


def test_a_model_shows_its_sizes_and_not_every_module():
    text = repr(model())
    assert text.splitlines()[0] == "Decoder"
    assert re.search(r"layers +4\n +heads +12 in a layer\n +width +24\n", text)
    assert re.search(r"parameters +[\d,]+, float32", text)
    assert "Block" in repr(model().layers)  # torch's tree is where the card says it is
    pytest.importorskip("transformers")
    from tests.pretrained.families import FAMILIES

    foreign = attnlab.load(FAMILIES["llama"].build())
    text = repr(foreign)
    assert len(text.splitlines()) <= 16
    assert re.search(r"class +Llama\w+, of the family llama\n", text)
    assert re.search(r"all modules +model\.foreign", text)
    assert "LlamaDecoderLayer" in repr(foreign.foreign)


def test_a_cell_that_is_too_long_for_its_line_goes_on_below():
    bound = "at least 0.9999 where the width is 1024; at most 0.1 nats of entropy"
    card = Card("claims", (), ("claim", "measured", "bound"), [("short", "0.5 " * 15, bound)] * 2)
    text = card_text(card, 15)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    words = " ".join(line[text.splitlines()[1].index("bound") :] for line in text.splitlines()[2:])
    assert " ".join(words.split()) == f"{bound} {bound}"
    wide = Card("claims", (), ("claim", "bound"), [("short", "x" * 300)])
    assert card_text(wide, 15).count("x") == 239  # and what is longer still is cut


def test_every_result_has_an_example_here():
    assert results() - SMALL <= set(EXAMPLES), (
        "a new kind of result: decorate it with @displayed and add an example"
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_result_shows_itself_in_a_few_lines_and_in_a_notebook_as_a_small_harmless_table(name):
    result = EXAMPLES[name]()
    text = repr(result)
    assert len(text) <= 1_000
    assert len(text.splitlines()) <= 16
    assert "tensor(" not in text
    assert not set(text) & {"\x1b", "\u202e"}
    page = result._repr_html_()
    if name in ("NotebookPage", "EditableView"):  # a whole page, in a frame that is sealed off
        assert page.startswith('<iframe sandbox="allow-scripts" ')
    else:
        assert len(page) <= 40_000
        assert not set(page) & {"\x1b", "\u202e"}
    assert "<script" not in page
    assert "http" not in page
    assert "tensor(" not in page


def test_a_table_is_scrolled_by_keyboard_and_what_cannot_be_read_says_why():
    @displayed
    class Small:
        def _card(self):
            return Card("Small", [], ["", "bound"], [["holds", "at most 1"]])

    page = Small()._repr_html_()
    assert page.startswith('<div style="overflow-x:auto" tabindex="0">')
    assert '<td style="text-align:left"></td><th style="text-align:left">bound</th>' in page

    @displayed
    class Damaged:
        def _card(self):
            raise CouldNotRun("the file is damaged.")

    assert repr(Damaged()) == "Damaged: the file is damaged."
    values = {"a": 1}, [torch.zeros(3)], float("nan"), "a\nb"
    assert list(map(short, values)) == ["1 item", "1 item", "nan", "a b"]


def test_a_result_without_a_short_form_is_caught():
    class Fat(typing.NamedTuple):
        values: torch.Tensor

    fat = Fat(torch.zeros(40, 40))
    assert "tensor(" in repr(fat)
    assert repr(displayed(Fat)(fat.values)) == "Fat\n  values  float32 (40, 40)"


def test_what_is_left_out_is_counted():
    card = Card("Many", columns=("a", "b"), rows=[[number, "x"] for number in range(100)])
    shown = ["Many", "  a  b", "  0  x", "  1  x", "  2  x", "… 97 more lines"]
    assert card_text(card, 5).splitlines() == shown
    assert len(card_text(card).splitlines()) == 102


def test_knock_outs_print_a_labelled_table():
    found = attnlab.ablate(model(), IDS, parts="layers.0.attention", heads=[0, 1])
    title, head, row = str(found).splitlines()
    assert "mean changes where a head is taken out" in title
    assert head.split() == ["layer", "head", "0", "head", "1"]
    assert [float(cell) for cell in row.split()[1:]] == pytest.approx(
        found.table()[0].tolist(), rel=1e-3
    )
    edges = attnlab.ablate(model(), IDS, "edges", parts="layers.0.attention")
    assert len(str(edges).splitlines()) == 12  # the ten largest of 210


def test_a_table_of_many_heads_says_first_which_are_the_largest():
    deep = new_model(vocab_size=20, max_length=64, num_layers=20)
    found = attnlab.ablate(deep, IDS)
    places, effects = zip(*found.largest(3), strict=True)
    lines = repr(found).splitlines()
    assert lines[-1].startswith("…")
    names = [name.split()[0] for name in lines[1].removeprefix("  largest  ").split(", ")]
    assert names == [f"{place.path.split('.')[1]}.{place.head}" for place in places]
    assert lines[1].split()[2].rstrip(",") == f"{effects[0]:+.4g}"
    change = str(attnlab.effect(deep, IDS, ZERO_HEAD))
    assert f"of {IDS.numel()} positions the likeliest token changes" in change
    few = attnlab.ablate(deep, IDS, parts="layers.0.attention")
    assert "largest" not in repr(few)


def test_results_with_rows_become_a_data_frame_where_pandas_is(monkeypatch):
    found = attnlab.ablate(model(), IDS, parts="layers.0.attention")
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=list))
    assert found.frame() == found.rows()
    assert found.rows()[3]["head"] == 3
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(CouldNotRun, match=r"a DataFrame needs pandas, .* pip install pandas"):
        found.frame()
    with pytest.raises(CouldNotRun, match="pandas"):
        frame([])
