"""The reference of the site has every public name, and nothing that is gone."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import reference_faults
import reference_index
import search_index
import signatures
import torch
from sphinx.ext import napoleon
from sphinx.util.docstrings import prepare_docstring

import attnlab
from attnlab import edits, truth
from attnlab.edits.edit import edit_kinds
from attnlab.edits.effects import Metric, SweepOptions

PAGES = sorted((Path(__file__).parents[1] / "docs" / "reference").glob("*.md"))
ENTRIES = re.findall(
    r"^\.\. auto(?:function|class|module):: (\S+)$", "".join(map(Path.read_text, PAGES)), re.M
)
MODULES = {"__version__", "course", "edits"}  # they have pages, or need none


def test_every_public_name_has_an_entry():
    names = set(attnlab.__all__) - MODULES | {f"edits.{name}" for name in edits.__all__}
    listed = {entry.removeprefix("attnlab.") for entry in ENTRIES}
    listed |= {entry.removeprefix("edits.") for entry in listed}
    listed |= {f"edits.{entry}" for entry in listed}
    assert names - listed == set()


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_names_what_there_is(entry):
    module, _, name = entry.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


def test_the_reference_says_everything_that_a_reader_needs():
    assert reference_faults.faults() == [], "python docs/reference_faults.py names what is missing"


def test_a_type_without_an_entry_is_seen(monkeypatch):
    kept = {kind: name for kind, name in reference_faults.entries().items() if kind is not Metric}
    monkeypatch.setattr(reference_faults, "entries", lambda: kept)
    found = list(reference_faults.types_without_entry())
    assert f"attnlab.ablate, metric: no entry for {Metric.__module__}.Metric" in found


def half_said(model: torch.nn.Module, weights: torch.Tensor) -> torch.Tensor:
    """Scale the weights of a model."""
    return weights


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("", ["no shape of weights, the result", "nothing about model", "Returns:", "Raises:"]),
        ("(row, key)\n\nArgs:\n    model: one.\n\nReturns:\n    them.", ["no section Raises:"]),
        ("(row, key) of a model\n\nReturns:\n    them.\n\nRaises:\n    WrongUsage: no.", []),
    ],
)
def test_what_a_docstring_leaves_out_is_seen(monkeypatch, said, missing):
    monkeypatch.setattr(half_said, "__doc__", f"Scale the weights.\n\n{said}")
    one = reference_faults.Public("half_said", half_said, "function")
    found = list(reference_faults.words_missing(one))
    assert len(found) == len(missing)
    assert all(words in line for words, line in zip(missing, found, strict=True))


def test_the_index_has_every_entry_with_a_sentence():
    rows = list(reference_index.names())
    assert [row.name for row in rows if not row.sentence] == []
    assert set(ENTRIES) - {row.name for row in rows} == {"attnlab.plot"}  # whose figures it has


def test_the_examples_of_edits_name_every_edit_and_apply(sorter):
    page = (Path(__file__).parents[1] / "docs" / "reference" / "edit.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    model = attnlab.load(sorter)
    names = {"attnlab": attnlab, "model": model}
    made, idle = [], []
    inputs = torch.tensor([[3, 1, 2, 0, 1, 2], [1, 1, 2, 0, 1, 1]])
    unedited = model(inputs).detach()
    for line in filter(None, block.splitlines()):
        exec(line, names)
        if re.match("[A-Z]", line):
            made.append(eval(line, names))
            with attnlab.edit(model, made[-1], certify=False):
                if (model(inputs) - unedited).abs().max() < 1e-4:
                    idle.append(line)
    assert idle == []
    assert {type(edit).__name__ for edit in made} == {*edits.__all__} & {*edit_kinds()}


def test_a_name_without_a_sentence_is_seen(monkeypatch):
    monkeypatch.setattr(attnlab.record, "__doc__", "Record\n\nAll of it.")
    assert search_index.sentence_of("attnlab.record") == ""
    assert search_index.sentence_of("attnlab.plot.head").endswith(".")


def test_a_signature_has_names_and_defaults_and_no_types():
    def shown(name, thing):
        return signatures.shorten(None, "", name, thing, None, "()", "")

    ablate, returned = shown("attnlab.ablate", attnlab.ablate)
    assert ablate.startswith("(model, inputs, what='heads', *, metric='logit', target=None")
    assert returned == "~attnlab.edits.effects.Ablation"
    assert shown("attnlab.edits.ScaleHead", edits.ScaleHead) == ("(**targets, factor)", "")
    assert shown("attnlab.edits.CutEdge", edits.CutEdge) == ("(**targets, renormalize=True)", "")
    assert shown("attnlab.edits.Certificate", edits.Certificate) == ("", "")
    assert shown("attnlab.plot.head", attnlab.plot.head)[1] == "Figure"
    assert (
        shown("attnlab.truth.score", truth.score)[1] == "list[~attnlab.truth.score.CircuitScores]"
    )


def test_a_function_of_those_used_most_without_an_example_is_seen(monkeypatch):
    monkeypatch.setattr(reference_faults, "WITH_EXAMPLE", ["head_lens"])
    one = next(one for one in reference_faults.public() if one.name == "attnlab.head_lens")
    assert list(reference_faults.words_missing(one)) == ["attnlab.head_lens: no example"]


def test_a_default_is_a_call_that_a_reader_can_write():
    mark = object()

    usual, one = SweepOptions(), SweepOptions(threads=1)

    def call(how=usual, other=one, part=slice(None), given=mark):
        """Take defaults."""

    assert signatures.signature_of(call) == (
        "(how=SweepOptions(), other=SweepOptions(threads=1), part=slice(None), given=...)"
    )


def test_no_signature_shows_a_name_that_cannot_be_looked_up():
    shown = [signatures.signature_of(one.value) for one in functions()]
    assert [line for line in shown if re.search(r"<|\b_?[A-Z]{3,}|object at", line)] == []


def functions():
    return [one for one in reference_faults.public() if one.kind in ("function", "method")]


def said_of(name, lines):
    """Return what the reference shows of a docstring after napoleon."""
    thing = search_index.thing_at(name)
    what = "class" if isinstance(thing, type) else "function"
    for handler in (signatures.list_fields, signatures.link_types, signatures.gather_fields):
        handler(None, what, name, thing, None, lines)
    return "\n".join(lines)


def test_a_result_says_which_functions_return_it_and_what_users_call_does_not():
    def said(name):
        lines = ["What it is."]
        signatures.add_sources(None, "class", name, search_index.thing_at(name), None, lines)
        return " ".join(lines)

    assert "*Returned by* :py:obj:`attnlab.circuits`." in said("attnlab.look.circuits.Circuits")
    assert ":py:obj:`attnlab.ablate`" in said("attnlab.edits.effects.Ablation")
    assert said("attnlab.Decoder") == said("attnlab.edits.ZeroHead") == "What it is."


def test_the_fields_of_a_result_are_a_list_with_their_types():
    lines = ["Two answers.", "", "before, after: all steps · step: from 1 · certificate: of them."]
    assert said_of("attnlab.edits.forks.Fork", lines).splitlines()[3:] == [
        ":Fields:",
        "   * **before, after**: all steps (:py:obj:`~attnlab.look.Trace`)",
        "   * **step**: from 1",
        "   * **certificate**: of them (:py:obj:`~attnlab.edits.Certificate`).",
    ]


def test_the_classes_of_parameters_and_of_the_result_are_linked():
    lines = [":param how: memory, see `SweepOptions`.", ":returns: the effect."]
    said = said_of("attnlab.ablate", lines)
    assert "see :py:obj:`~attnlab.edits.effects.SweepOptions`." in said
    assert "the effect (:py:obj:`~attnlab.edits.effects.Ablation`)." in said


def test_names_in_a_docstring_are_links_but_for_parameters_and_other_words():
    lines = ["See `record`, `attnlab.load`, `Certificate.holds`, `metric` and `edits`."]
    signatures.link_names(None, "function", "attnlab.ablate", attnlab.ablate, None, lines)
    assert lines == [
        "See :py:obj:`record <attnlab.record>`, :py:obj:`attnlab.load <attnlab.load>`, "
        ":py:obj:`Certificate.holds <attnlab.edits.Certificate.holds>`, `metric` and `edits`."
    ]


def test_what_is_returned_is_no_type_even_with_a_colon():
    lines = ["Do.", "", "Returns:", "    the effect: printed,", "    a table.", "", "Raises:"]
    signatures.keep_returns(None, "function", "attnlab.ablate", attnlab.ablate, None, lines)
    assert lines[2] == ":returns: the effect: printed, a table."
    assert lines[3:] == ["", "Raises:"]


def shown_of(what, name, thing):
    """Return the lines of a docstring after every handler of the reference, napoleon among them."""
    handlers = []

    class App:
        config = napoleon.Config(napoleon_use_ivar=True, napoleon_use_rtype=False)

        def connect(self, event, handler, priority=500):
            if event == "autodoc-process-docstring":
                handlers.append((priority, handler))

    signatures.setup(App())
    handlers.append((500, napoleon._process_docstring))
    lines = prepare_docstring(inspect.getdoc(thing) or "")
    for _, handler in sorted(handlers, key=lambda pair: pair[0]):
        handler(App, what, name, thing, None, lines)
    return lines


def members(kind):
    return [one for one in reference_faults.public() if one.kind == kind]


def faults_of(what):
    """Name the properties without the first words of their docstring, or the methods that tell a
    result of which their docstring says nothing."""
    for one in members(what):
        doc = inspect.getdoc(one.value) or ""
        thing = property(one.value) if what == "property" else one.value
        lines = shown_of(what, one.name, thing)
        plain = re.sub(r":py:obj:`([^<`]*) <[^`]*`", r"`\1`", "\n".join(lines))
        if what == "property" and (not plain.startswith(doc) or ":type:" in plain):
            yield one.name
        if what == "method" and ":returns:" in plain and "Returns:" not in doc:
            yield one.name


def test_a_property_is_shown_as_its_docstring_has_it(monkeypatch):
    assert list(faults_of("property")) == []
    monkeypatch.setattr(signatures, "keep_property", lambda *given: None)
    assert "attnlab.edits.effects.Patched.shares" in list(faults_of("property"))


def test_a_method_tells_no_result_that_its_docstring_does_not(monkeypatch):
    assert list(faults_of("method")) == []

    def add_result(app, what, name, thing, options, lines):
        lines += [":returns: Any, float"]

    monkeypatch.setattr(signatures, "link_names", add_result)
    assert "attnlab.edits.effects.Ablation.largest" in list(faults_of("method"))


def test_the_index_lists_what_one_calls_and_names_results_below():
    tables = reference_index.tables()
    assert "| {py:obj}`ablate <attnlab.ablate>` | Take out each head" in tables
    line = next(line for line in tables.splitlines() if "Ablation <" in line)
    assert line.startswith("| *what these take and return* |")


def test_each_setting_of_a_config_has_a_line():
    lines = []
    signatures.add_settings(None, "", "", attnlab.DecoderConfig, None, lines)
    assert len(lines) == len(attnlab.DecoderConfig.options())
    assert ":param norm: Which norm. One of `layer`, `rms`. By default `layer`." in lines
