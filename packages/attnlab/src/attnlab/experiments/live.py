"""What answers in a notebook: a run, a population, a trained or pretrained model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import torch
from torch import nn

from attnlab.core.sizes import count_numbers
from attnlab.display import plural
from attnlab.draw.page import render_page
from attnlab.draw.sections import ReportContent, Traces, shown_trace
from attnlab.draw.view.page import NOTEBOOK_BYTES, view_page
from attnlab.errors import AttnlabError, WrongUsage, type_words
from attnlab.experiments.model_loader import load
from attnlab.experiments.notebook import Asker, EditableView, PageState, is_drawn, notes_of
from attnlab.experiments.population import Population
from attnlab.experiments.prompts import ask
from attnlab.experiments.report import Report
from attnlab.look.pretrained_questions import TextContinuation, example_text
from attnlab.look.questions import Classification, Continuation, Question
from attnlab.look.readers import model_name, reader_of
from attnlab.look.trace import Trace
from attnlab.models.decoder import Decoder
from attnlab.models.encoder import Encoder
from attnlab.pretrained.model import Pretrained
from attnlab.sites import site_names

_MOST_EXAMPLE = 4  # ids of an example
_MOST_STEPS = 8  # of what a model by itself goes on with


def live_report(thing: Any) -> EditableView | None:
    """Show the report of a run or a population, or the card of a model, so that it answers to what
    is typed; return None for what answers nothing."""
    if isinstance(thing, Population):
        return EditableView(
            _report_page(thing.report), _population_asker(thing), is_report=True, population=thing
        )
    if isinstance(thing, Report):
        try:
            asker = asker_of(thing)
        except AttnlabError:  # it is shown as it is
            return None
        start = PageState(input=_first_input(thing.content))
        return EditableView(_report_page(thing), asker, start, is_report=True)
    if isinstance(thing, nn.Module):
        return _live_model(thing)
    return None


def _live_model(model: nn.Module) -> EditableView:
    """Show a model that answers what is typed, opened with an example that it has answered."""
    asker = _stepwise_asker(model)
    answerer = asker.answerer("", asker.example)
    start = PageState(input=asker.example)
    if is_drawn(answerer.trace):
        page = render_page(_card_of(model, answerer.trace), is_live=True)
        return EditableView(page, asker, start, is_report=True)
    notes = notes_of(answerer.trace)
    page = view_page(answerer.recording, notes=notes, max_bytes=NOTEBOOK_BYTES)
    return EditableView(page, asker, start)


def asker_of(thing: Report | nn.Module) -> Asker:
    """Return what asks a run's model, or a model.

    Raises:
        WrongUsage, CouldNotRun: the run has no model to ask, or the model reads no text.
    """
    if isinstance(thing, Report):
        return Asker(lambda _seed, text: ask(thing, text), thing.reader.prompt)
    _check_evaluated(thing)
    reader = reader_of(thing)
    if reader is not None:
        prompt, example = reader.prompt, reader.example
        return Asker(lambda _seed, text: ask(thing, text), prompt, example)
    if _takes_ids(thing):
        example = " ".join(map(str, _example_ids(thing)))
        return Asker(lambda _seed, text: _ask_ids(thing, text), _ids_prompt(thing), example)
    if isinstance(thing, Pretrained):
        if thing.vocabulary is None:
            raise WrongUsage(
                "this model came without a tokenizer, so a page cannot ask it; show what it makes "
                "of ids instead: attnlab.show(attnlab.record(model, ids))."
            )
        return Asker(lambda _seed, text: ask(thing, text), "a text", example_text(thing))
    if not site_names(thing):
        return asker_of(load(thing))
    raise WrongUsage(
        f"{type(thing).__name__} does not know what its tokens are called, so a page cannot ask "
        "it; show its run, or what it makes of ids: attnlab.show(attnlab.record(model, ids))."
    )


def _takes_ids(model: Any) -> TypeGuard[Decoder | Encoder]:
    """Is this a model of this package that goes on with ids, or finds the class of them?"""
    if isinstance(model, Encoder):
        return model.config.num_classes is not None and not model.config.per_token
    return isinstance(model, Decoder)


def _stepwise_asker(model: Any) -> Asker:
    """Ask a model so that one which goes on with a text does so for some steps to follow."""
    asker = asker_of(model)

    def ask_steps(seed: str, text: str) -> Question:
        _check_evaluated(model)
        question = asker.ask(seed, text)
        if isinstance(question, TextContinuation):
            return ask(model, text, steps=_MOST_STEPS)
        return question

    return replace(asker, ask=ask_steps)


def _check_evaluated(model: nn.Module) -> None:
    if model.training and not isinstance(model, Pretrained):
        raise WrongUsage("the model is in training mode, where dropout acts; call model.eval().")


def _population_asker(population: Population) -> Asker | None:
    reader = population.report.reader
    if not reader.is_askable:
        return None
    return Asker(lambda seed, text: ask(population.model(seed), text), reader.prompt)


def _report_page(report: Report) -> str:
    return render_page(replace(report.content, claims=report.claims), is_live=True)


def _first_input(content: ReportContent) -> str:
    """Return the recorded input with which the living picture begins, see `report/trace.js`."""
    tokens: Sequence[str] = ()
    for part in content.sections:
        if isinstance(part, Traces):
            for trace in part.traces:
                if len(set(trace.input)) >= len(set(tokens)):
                    tokens = trace.input
    if all(len(token) == 1 for token in tokens):
        return "".join(tokens)
    return " ".join(tokens)


def _example_ids(model: Decoder | Encoder) -> list[int]:
    """Return a few different ids, so that something is left to be generated."""
    room = max(1, model.config.max_length // 2)
    return list(range(model.config.vocab_size))[: min(room, _MOST_EXAMPLE)]


def _ids_prompt(model: Decoder | Encoder) -> str:
    most = model.config.vocab_size - 1
    return f"ids of tokens from 0 to {most} with blanks between them, such as {most} 0"


def _ask_ids(model: Decoder | Encoder, text: str) -> Question:
    """Put ids to a model of this package, which does not know what its tokens are called."""
    names, words = list(map(str, range(model.config.vocab_size))), text.split()
    if not words or not set(words) <= set(names):
        raise WrongUsage(
            f"expected {_ids_prompt(model)}; got {text!r}. The names of its tokens are in its run."
        )
    ids = torch.tensor([list(map(int, words))], device=next(model.parameters()).device)
    if isinstance(model, Encoder):
        classes = [f"class {number}" for number in range(model.config.num_classes or 0)]
        return Classification(model, ids, words, classes)
    room = model.config.max_length - len(words)
    if room < 1:
        raise WrongUsage(
            f"expected fewer than {model.config.max_length} ids, as that is all that the model "
            f"reads; got {len(words)}."
        )
    return Continuation(model, ids, min(_MOST_STEPS, room), names)


def _card_of(model: nn.Module, trace: Trace) -> ReportContent:
    """Describe a model in a line, and show an answer of it."""
    named = model.foreign if isinstance(model, Pretrained) else model
    number = count_numbers(model.parameters())
    words = f"{number:,} {plural(number, 'parameter')}"
    kind = type_words(named)
    subtitle = f"{kind[0].upper()}{kind[1:]} of {words} that answers in this notebook."
    section = Traces(
        title="An answer, step by step",
        caption="At each step the model looks back from the last token it knows, and chooses "
        "the next one.",
        traces=[shown_trace(trace)],
    )
    return ReportContent(title=model_name(model), subtitle=subtitle, facts=[], sections=[section])
