"""`show`: a run, a recording, a trace or bare weights, in a notebook or in the browser."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from attnlab.draw.attention.pattern import CAUSAL, Pattern
from attnlab.draw.census import census_report
from attnlab.draw.corpus import corpus_report
from attnlab.draw.long_text_report import document_report
from attnlab.draw.number_tables import has_tables, tables_report
from attnlab.draw.page import render_page
from attnlab.draw.sections import ReportContent, Traces, shown_trace
from attnlab.draw.view.page import NOTEBOOK_BYTES, NotebookPage, show_page, view_page
from attnlab.errors import WrongUsage, type_words
from attnlab.experiments.live import asker_of, live_report
from attnlab.experiments.notebook import (
    Asker,
    EditableView,
    PageState,
    has_widgets,
    is_drawn,
    notes_of,
)
from attnlab.experiments.opener import open
from attnlab.experiments.population import Population
from attnlab.experiments.report import Report
from attnlab.experiments.sweeps import Sweep
from attnlab.experiments.tune.tuner import Search
from attnlab.look import Recording, record
from attnlab.look.census import Census
from attnlab.look.corpus import CorpusSearch
from attnlab.look.long_text import Document
from attnlab.look.trace import HeadTrace, Trace
from attnlab.programs import CompiledProgram
from attnlab.progress import shows_pages

_OPENING: dict[str, Any] = {"opens": "telling"}
"""A recording opens with the head that tells most, as on the page of `attnlab look`."""


def show(
    thing: Any,
    tokens: Any = None,
    *,
    other: Any = None,
    out: Path | str | None = None,
    **options: Any,
) -> NotebookPage | EditableView | Path:
    """Show a run, model, recording or result, in the notebook if this is one, else in the browser.

    Args:
        thing: a run, population, sweep or search, or the folder of one; a model, which answers an
            example or a text; a question, which is then answered, or a trace; a recording or
            summaries of one; the result of `patch_all`, `ablate`, `pattern_effects` or
            `direct_logits`; a compiled program; a document, a corpus search or a census; or bare
            weights: (query, key), (head, query, key), a list of these by layer, and Hugging Face's
            `outputs` or `outputs.attentions`.
        tokens: what the places are called, where weights are shown: a list of texts, a pair (of the
            queries, of the keys), or lists by stack, `{"encoder": …, "decoder": …}`; or the text
            that a run, a model or a compiled program is asked, `"3 1 2 0"` where it reads ids.
        other: a second recording, or weights, to be compared with the first.
        out: a file to write the page to; it is not opened then, nor live.
        **options: of weights, as `view_page` takes them.

    Returns:
        what a notebook displays, a `NotebookPage`, or the path of the file that was written. With
        anywidget installed, a run, a population, a model, a question and a recording are live in a
        notebook, an `EditableView`: they take inputs, a choice of seed and edits.

    Raises:
        WrongUsage: it is nothing that can be shown, or its tokens do not fit.
        CouldNotRun: a folder holds none of these, or is damaged.

    >>> import tempfile
    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     show(attnlab.record(model, tokens), out=Path(folder, "heads.html")).name
    'heads.html'
    """
    if isinstance(thing, str | Path):
        thing = open(thing)
    if isinstance(thing, CompiledProgram):
        thing, options, tokens = *_recorded(thing, tokens, options), None
    is_live = other is None and out is None and shows_pages() and has_widgets()
    live = _live(thing, tokens, options) if is_live else None
    if live is not None:
        return live
    if isinstance(thing, nn.Module) and tokens is None and other is None:
        tokens = asker_of(thing).example
    if isinstance(thing, Report | nn.Module) and isinstance(tokens, str):
        thing, tokens = asker_of(thing).ask("", tokens), None
    return _shown(thing, tokens, other, out, options)


def _live(thing: Any, tokens: Any, options: dict[str, Any]) -> EditableView | None:
    """Show what answers in a notebook, or takes edits; return None for all else."""
    if tokens is None and not options and isinstance(thing, Report | Population | nn.Module):
        return live_report(thing)
    options = {"max_bytes": NOTEBOOK_BYTES, **options}
    if isinstance(thing, Recording):
        return EditableView(view_page(thing, tokens=tokens, **{**_OPENING, **options}))
    if _is_question(thing):
        asker, start = Asker(lambda _seed, _text: thing), PageState()
    elif isinstance(tokens, str) and isinstance(thing, Report | nn.Module):
        asker, start, tokens = asker_of(thing), PageState(input=tokens), None
    else:
        return None
    answerer = asker.answerer(start.seed, start.input)
    options = {"notes": notes_of(answerer.trace), **options}
    return EditableView(view_page(answerer.recording, tokens=tokens, **options), asker, start)


def _is_question(thing: Any) -> bool:
    return hasattr(thing, "pass_inputs") and hasattr(thing, "trace")


def _shown(
    thing: Any, tokens: Any, other: Any, out: Path | str | None, options: dict[str, Any]
) -> NotebookPage | Path:
    """Show what is neither a folder nor a figure, nor something to be asked."""
    if _is_question(thing):
        thing = thing.trace()
    page = _page_of(thing)
    if page is None:
        if isinstance(thing, Trace):
            options = {"notes": notes_of(thing), **options}
            thing = _patterns_of(thing)
        if isinstance(thing, Recording):
            options = {**_OPENING, **options}
        if shows_pages():
            options = {"max_bytes": NOTEBOOK_BYTES, **options}
        return show_page(view_page(thing, other, tokens=tokens, **options), out)
    if tokens is not None or other is not None or options:
        hint = "tokens, other and options go with weights."
        if isinstance(thing, Population):
            hint = 'a member can be asked: attnlab.show(population.member(0), "cab").'
        raise WrongUsage(f"{type_words(thing)} is shown as it is; {hint}")
    return show_page(page, out)


def _recorded(
    compiled: CompiledProgram, tokens: Any, options: dict[str, Any]
) -> tuple[Recording, dict[str, Any]]:
    """Put an input to a compiled program, and record where each head looks."""
    if tokens is None:
        known = "".join(map(str, compiled.alphabet))
        raise WrongUsage(f"say what the program shall read, as in: show(compiled, {known[:6]!r}).")
    with record(compiled.model, "layers.*.attention.weights") as recording:
        compiled.logits(compiled.ids([tokens]))
    names = [*["BOS"] * compiled.has_bos, *map(str, tokens)]
    answer = " ".join(map(str, compiled(tokens)))
    notes = [("Read", " ".join(map(str, tokens))), ("Answer", answer)]
    return recording.named({"": names}), {"notes": notes, **options}


def _page_of(thing: Any) -> str | None:
    """Render a report as a page; return None for weights."""
    if isinstance(thing, Report | Population | Sweep | Search):
        return thing.html()
    if isinstance(thing, Document):
        return render_page(document_report(thing))
    if isinstance(thing, CorpusSearch):
        return render_page(corpus_report(thing))
    if isinstance(thing, Census):
        return render_page(census_report(thing))
    if has_tables(thing):
        return render_page(tables_report(thing))
    is_trace = isinstance(thing, Trace) and is_drawn(thing)
    return render_page(_trace_report(thing)) if is_trace else None


def _trace_report(trace: Trace) -> ReportContent:
    section = Traces(
        title="Step by step",
        caption="At each step the model looks back from the last token it knows, and chooses "
        "the next one.",
        traces=[shown_trace(trace)],
    )
    subtitle = " ".join(trace.input)
    return ReportContent(title="Trace", subtitle=subtitle, facts=[], sections=[section])


def _patterns_of(trace: Trace) -> list[Pattern]:
    """Turn the heads of a trace into patterns; rows that end early mean causal attention."""
    sites: dict[str, list[HeadTrace]] = {}
    for head in trace.attention:
        sites.setdefault(head.site, []).append(head)
    texts = []
    for site, heads in sites.items():
        keys = heads[0].key_tokens or trace.tokens[: max(map(len, heads[0].rows))]
        weights = np.zeros((len(heads), len(heads[0].rows), len(keys)), np.float32)
        for number, head in enumerate(heads):
            for query, row in enumerate(head.rows):
                weights[number, query, : len(row)] = row
        is_causal = any(len(row) < len(keys) for row in heads[0].rows)
        queries = tuple(trace.tokens[: len(heads[0].rows)])
        texts.append(Pattern(site, weights, queries, tuple(keys), CAUSAL if is_causal else None))
    return texts
