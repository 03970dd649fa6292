"""A page in a notebook that takes edits: they come back to Python, and the model answers to them.

The widget is made by anywidget, which is optional: `pip install attnlab[notebook]`.
"""

import importlib.util
import json
import os
import sys
import uuid
from functools import cache
from itertools import zip_longest
from typing import Any

import torch

from attnlab.display import Card, displayed
from attnlab.draw.attention.recordings import to_drawable
from attnlab.draw.bundle import bundle
from attnlab.draw.markup import to_embedded_json
from attnlab.draw.view.page import NOTEBOOK_BYTES, Shown
from attnlab.draw.view.wire import pack
from attnlab.edits import Edit, edit, edits_from_json
from attnlab.errors import AttnlabError
from attnlab.look.questions import Question, recorded
from attnlab.look.trace import Trace

_NO_STEP = {"choice": "", "probability": None}  # of an answer that ended sooner
_SHOWS_NO_HTML_BESIDE = ("VSCODE_PID", "VSCODE_CWD")  # set in the kernels of VS Code


def has_widgets() -> bool:
    """Is anywidget installed?"""
    return importlib.util.find_spec("anywidget") is not None


class Answerer:
    """A question, and what its model answers without edits and with them."""

    def __init__(self, question: Question) -> None:
        self._question, self.trace = question, question.trace()
        self._passage = question.passage()
        self.recording = recorded(question, passage=self._passage)

    def answer(self, edits: list[Edit]) -> dict[str, Any]:
        """Return the steps of both answers, the certificate, and the maps of both as a view's wire
        form; the maps are of the tokens of the unedited answer."""
        model, names = self._question.model, self._question.vocabulary
        with edit(model, *edits, vocabulary=names) as certificate, torch.no_grad():
            after = self._question.trace()
        with edit(model, *edits, vocabulary=names, certify=False):
            recording = recorded(self._question, passage=self._passage)
        packed = pack(to_drawable(self.recording), to_drawable(recording), max_bytes=NOTEBOOK_BYTES)
        steps = zip_longest(_steps(self.trace), _steps(after), fillvalue=_NO_STEP)
        return {
            "steps": [{"before": one, "after": other} for one, other in steps],
            "certificate": str(certificate),
            "manifest": json.loads(to_embedded_json(packed.manifest)),
            "tiles": packed.tiles,
        }


def _steps(trace: Trace) -> list[dict[str, Any]]:
    found = []
    for step in trace.steps:
        shares = dict(zip(step.candidates, step.probabilities, strict=True))
        found.append({"choice": step.choice, "probability": shares.get(step.choice)})
    return found


def result_of(forms: list[Any], answerer: Answerer | None) -> dict[str, Any]:
    """Return what a page is told about its edits: those it sent, and the answer or an error."""
    try:
        edits = edits_from_json(forms)
        found = answerer.answer(edits) if answerer is not None and edits else {}
    except AttnlabError as error:
        found = {"error": str(error)}
    return {"edits": forms, **found}


@displayed
class EditableView:
    """A page in a notebook that takes edits. `edits` are those made so far, for
    `attnlab.edit(model, *shown.edits)`; as JSON they are in the traitlet `widget.edits`, which may
    also be set."""

    def __init__(self, page: str, answerer: Answerer | None = None) -> None:
        frame = f"attnlab-{uuid.uuid4().hex}"
        self._shown = Shown(page, name=frame)
        self.widget = _widget_class()(frame=frame, has_model=answerer is not None)
        self.widget.height = self._shown.height
        self.widget.observe(lambda change: self._hear(change["new"], answerer), "edits")

    @property
    def edits(self) -> list[Edit]:
        """The edits, in their order."""
        return edits_from_json(list(self.widget.edits))

    def _hear(self, forms: list[Any], answerer: Answerer | None) -> None:
        self.widget.result = result_of(forms, answerer)

    def _card(self) -> Card:
        return Card("Page that takes edits", [("edits", len(self.widget.edits))])

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


@cache
def _widget_class() -> Any:
    import traitlets
    from anywidget import AnyWidget

    class AttentionWidget(AnyWidget):  # type: ignore[misc]
        """Carries edits and answers; see `draw/view/modules/widget.js`."""

        _esm = f"{bundle('view/modules/widget.js')}export default widget;\n"
        frame = traitlets.Unicode().tag(sync=True)
        page = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)
        has_model = traitlets.Bool().tag(sync=True)
        edits = traitlets.List().tag(sync=True)
        result = traitlets.Dict({"edits": []}).tag(sync=True)

    return AttentionWidget
