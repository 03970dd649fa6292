"""A live page in a notebook: what is typed, chosen and edited in it comes back to Python, and the
model answers.

The widget is made by anywidget, which is optional: `pip install attnlab[notebook]`.
"""

import importlib.util
import json
import os
import sys
import textwrap
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

import torch

from attnlab.display import Card, displayed
from attnlab.draw.attention.recordings import to_drawable
from attnlab.draw.bundle import bundle
from attnlab.draw.json_form import without_nan
from attnlab.draw.sections import shown_trace
from attnlab.draw.view.maps import fit_maps
from attnlab.draw.view.page import NOTEBOOK_BYTES, NotebookPage, page_facts
from attnlab.draw.wire import drawn_trace
from attnlab.edits import Edit, edit, edits_from_json
from attnlab.errors import AttnlabError, WrongUsage, type_words
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.seed_maps import seed_maps
from attnlab.look.questions import Question, recorded
from attnlab.look.recording import Recording
from attnlab.look.trace import Trace

_NO_STEP: dict[str, Any] = {
    "choice": "",
    "probability": None,
    "others": [],
}  # of an answer that ended sooner
_MOST_WEIGHTS = 200_000  # of a trace whose heads are drawn step by step
_MOST_OTHERS = 3  # candidates beside the choice
_MOST_LETTERS = 300  # of a refusal on the page
_SHARED = ["seed", "input", "edits"]  # as in draw/view/modules/notebook.js
_SHOWS_NO_HTML_BESIDE = ("VSCODE_PID", "VSCODE_CWD")  # set in the kernels of VS Code


def has_widgets() -> bool:
    """Is anywidget installed?"""
    return importlib.util.find_spec("anywidget") is not None


class ModelAnswer(NamedTuple):
    """What a model answers: step by step, its weights, and what the edits did."""

    trace: Trace
    recording: Recording
    certificate: str = ""


class Answerer:
    """A question, and what its model answers without edits and with them."""

    def __init__(self, question: Question) -> None:
        self._question, self.trace = question, question.trace()
        self._inputs = question.pass_inputs()
        self.recording = recorded(question, inputs=self._inputs)

    def answer(self, edits: list[Edit]) -> ModelAnswer:
        """Answer with edits; the recording is of the tokens of the unedited answer."""
        if not edits:
            return ModelAnswer(self.trace, self.recording)
        model, names = self._question.model, self._question.vocabulary
        with edit(model, *edits, vocabulary=names) as certificate, torch.no_grad():
            after = self._question.trace()
        with edit(model, *edits, vocabulary=names, certify=False):
            recording = recorded(self._question, inputs=self._inputs)
        return ModelAnswer(after, recording, str(certificate))


@dataclass(frozen=True)
class Asker:
    """The model that a page asks, or the models of a population.

    ask: makes a question of a seed and an input · prompt: what can be typed, in words; empty for a
    question that stays the same · example: an input with which a page opens.
    """

    ask: Callable[[str, str], Question]
    prompt: str = ""
    example: str = ""

    def can_ask(self, text: str) -> bool:
        """Is there an input, or is none needed?"""
        return bool(text) or not self.prompt

    @cached_property
    def answerer(self) -> Callable[[str, str], Answerer]:
        """Answer an input of a seed without edits; the last answers are kept."""
        return lru_cache(maxsize=4)(lambda seed, text: Answerer(self.ask(seed, text)))


@dataclass(frozen=True)
class PageState:
    """What a page and Python share: the chosen seed, the input, and the edits as JSON."""

    seed: str = ""
    input: str = ""
    edits: tuple[Any, ...] = ()


def result_of(
    state: PageState, asker: Asker | None, home: PageState | None = None
) -> dict[str, Any]:
    """Return what a page is told: the state, and the answer to it or an error.

    home: the state whose maps the page holds; None for a page that draws the steps, too.
    """
    result = {"seed": state.seed, "input": state.input, "edits": list(state.edits)}
    answerer = answer = None
    try:
        if asker is not None and asker.can_ask(state.input):
            answerer = asker.answerer(state.seed, state.input)
    except AttnlabError as error:
        return {**result, "refused": _brief(error)}
    try:
        edits = edits_from_json(list(state.edits))  # checked also where nothing is asked yet
        answer = answerer.answer(edits) if answerer else None
    except AttnlabError as error:
        result["error"] = _brief(error)
        answer = answerer.answer([]) if answerer else None
    if answerer is None or answer is None:
        return result
    steps = without_nan(_pairs(answerer.trace, answer.trace))
    result |= {"steps": steps, "certificate": answer.certificate}
    if home is None:
        result["trace"] = _drawn(answer.trace)
    if home is None or state != home:
        result |= _maps(answerer, answer)
    return result


def _brief(error: AttnlabError) -> str:
    """Return what an error says, without the most of a long input that it repeats."""
    return textwrap.shorten(str(error), _MOST_LETTERS, placeholder=" …")


def _maps(answerer: Answerer, answer: ModelAnswer) -> dict[str, Any]:
    """Return the maps without and with edits, and the facts of the input."""
    patterns, others = to_drawable(answerer.recording), []
    if answer.recording is not answerer.recording:
        others = to_drawable(answer.recording)
    maps = fit_maps(patterns, others, max_bytes=NOTEBOOK_BYTES)
    facts = page_facts(answerer.recording, patterns, notes_of(answerer.trace))
    return {"maps": without_nan(maps), "facts": facts}


def notes_of(trace: Trace) -> list[tuple[str, str]]:
    """Return the notes below a page's title: what the model read, and its answer."""
    notes = [("Read", " ".join(trace.input))]
    if trace.steps:
        notes.append(("Answer", " ".join(trace.choices)))
    return notes


def is_drawn(trace: Trace) -> bool:
    """Can a page draw this trace step by step: is there a query for each step?"""
    return bool(trace.steps) and all(step.position is not None for step in trace.steps)


def _drawn(trace: Trace) -> Any:
    """Return a trace as a page draws it, without the heads where they are many; None where it
    cannot."""
    if not is_drawn(trace):
        return None
    if sum(len(row) for head in trace.attention for row in head.rows) > _MOST_WEIGHTS:
        trace = replace(trace, attention=())
    return without_nan(drawn_trace(shown_trace(trace)))


def _pairs(before: Trace, after: Trace) -> list[dict[str, Any]]:
    pairs = zip_longest(_steps(before), _steps(after), fillvalue=_NO_STEP)
    return [{"before": one, "after": other} for one, other in pairs]


def _steps(trace: Trace) -> list[dict[str, Any]]:
    lines = []
    for step in trace.steps:
        shares = dict(zip(step.candidates, step.probabilities, strict=True))
        others = sorted(shares.items(), key=lambda pair: -pair[1])
        others = [other for other in others if other[0] != step.choice][:_MOST_OTHERS]
        probability = shares.get(step.choice)
        lines.append({"choice": step.choice, "probability": probability, "others": others})
    return lines


@displayed
class EditableView:
    """A live page in a notebook. `edits` are those made so far, for
    `attnlab.edit(model, *shown.edits)`; `input` is what was asked, `seed` the chosen seed of a
    population. Each may be set, and the page follows."""

    def __init__(
        self,
        page: str,
        asker: Asker | None = None,
        start: PageState | None = None,
        *,
        is_report: bool = False,
        population: Population | None = None,
    ) -> None:
        frame = f"attnlab-{uuid.uuid4().hex}"
        self._shown, self._asker, self._population = (
            NotebookPage(page, name=frame),
            asker,
            population,
        )
        self._home = None if is_report else start or PageState()
        seeds = seed_maps(population) if population is not None else {}
        start = start or PageState(seed=seeds.get("typical", ""))
        self._answered = start.input
        self.widget = _widget_class()(
            frame=frame,
            height=self._shown.height,
            has_model=asker is not None,
            prompt=asker.prompt if asker else "",
            seeds=seeds,
            seed=start.seed,
            input=start.input,
            result=result_of(start, asker, self._home),
        )
        self.widget.observe(self._hear, _SHARED)

    @property
    def edits(self) -> list[Edit]:
        """The edits, in their order."""
        return edits_from_json(list(self.widget.edits))

    @edits.setter
    def edits(self, edits: Sequence[Edit]) -> None:
        if not isinstance(edits, list | tuple) or not all(isinstance(edit, Edit) for edit in edits):
            raise WrongUsage(
                "edits are a list, such as [attnlab.ZeroHead(layer=0, head=0)]; got "
                f"{type_words(edits)}."
            )
        forms = json.dumps([edit.to_json() for edit in edits])
        forms = json.loads(forms, parse_int=_exact)
        if self._asker is not None and self._asker.can_ask(self._answered):
            answerer = self._asker.answerer(self.widget.seed, self._answered)
            answerer.answer(list(edits))  # or the error is raised here
        self.widget.edits = forms

    @property
    def input(self) -> str:
        """The input that was answered last; empty as long as none was."""
        return self._answered

    @input.setter
    def input(self, text: str) -> None:
        if self._asker is None or not self._asker.prompt:
            raise WrongUsage("this page asks no model; show a run, a population or a model.")
        if not isinstance(text, str):
            raise WrongUsage(f"an input is a text; got {type_words(text)}.")
        self._asker.answerer(self.widget.seed, text)  # or the error is raised here
        self.widget.input = text

    @property
    def seed(self) -> int | str:
        """The chosen seed, for `population.member(shown.seed)`."""
        name = str(self.widget.seed)
        return int(name) if name.isdigit() else name

    @seed.setter
    def seed(self, seed: int | str) -> None:
        if self._population is None:
            raise WrongUsage("only a population has seeds to choose from.")
        self.widget.seed = self._population.name(self._population.index(seed))

    def _hear(self, _: Any) -> None:
        state = PageState(self.widget.seed, self.widget.input, tuple(self.widget.edits))
        try:
            self.widget.result = self._result(state)
        except Exception as error:  # the page would wait for an answer
            words = f"{type(error).__name__}: {error}"
            self.widget.result = {**asdict(state), "edits": list(state.edits), "error": words}
            raise

    def _result(self, state: PageState) -> dict[str, Any]:
        """Answer; where an input is refused, the last answer stays, and takes edits."""
        result = result_of(state, self._asker, self._home)
        if "refused" not in result:
            self._answered = state.input
        elif state.input != self._answered:
            kept = result_of(replace(state, input=self._answered), self._asker, self._home)
            return {**kept, "input": state.input, "refused": result["refused"]}
        return result

    def _card(self) -> Card:
        facts = [("seed", self.seed), ("input", self.input), ("edits", len(self.widget.edits))]
        return Card("Live page", [pair for pair in facts if pair[1] != ""])

    def _repr_html_(self) -> str:
        return self._shown._repr_html_()

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """Add the widget where a page in a frame could not find it.

        JupyterLab shows the page, which a saved notebook keeps; it would show an error instead of a
        widget that is gone.
        """
        is_colab = "google.colab" in sys.modules
        if not is_colab and not any(name in os.environ for name in _SHOWS_NO_HTML_BESIDE):
            return {}
        return self._display_()._repr_mimebundle_()

    def _display_(self) -> Any:
        """Return what marimo displays."""
        self.widget.page = self._shown.page
        return self.widget


def _exact(digits: str) -> int:
    """Read a whole number that JavaScript, which has float64 alone, can hold."""
    if abs(int(digits)) > 2**53:
        raise WrongUsage(f"a page holds whole numbers up to 2**53; got {digits}.")
    return int(digits)


@cache
def _widget_class() -> Any:
    import traitlets
    from anywidget import AnyWidget

    class AttentionWidget(AnyWidget):  # type: ignore[misc]
        """Carries what page and kernel share; see `draw/view/modules/widget.js`."""

        _esm = f"{bundle('attnlab/draw/view/modules/widget.js')}export default widget;\n"
        frame = traitlets.Unicode().tag(sync=True)
        page = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)
        has_model = traitlets.Bool().tag(sync=True)
        prompt = traitlets.Unicode().tag(sync=True)
        seeds = traitlets.Dict().tag(sync=True)
        seed = traitlets.Unicode().tag(sync=True)
        input = traitlets.Unicode().tag(sync=True)
        edits = traitlets.List().tag(sync=True)
        result = traitlets.Dict().tag(sync=True)

    return AttentionWidget
