"""Forks: one question answered twice, the same up to a step and edited from there on.

The two answers share the choices before the fork, so the first different choice is due to the
edits, and later ones to that choice as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from attnlab.display import Card, displayed
from attnlab.edits.application import check_edits, edit
from attnlab.edits.certificate import Certificate
from attnlab.edits.coverage import Coverage, check_reach
from attnlab.edits.edit import Edit
from attnlab.edits.editor import Editor
from attnlab.errors import WrongUsage
from attnlab.look.questions import Question
from attnlab.look.trace import Trace
from attnlab.shapes import require_integer

_ID_INPUTS = ("tokens", "input_ids", "decoder_input_ids")


@displayed
@dataclass(frozen=True)
class Fork:
    """Two answers to one question.

    before, after: all steps without and with the edits · step: where the edits begin, from 1 ·
    diverged_at: the first step whose choice differs, or None · certificate: of the edits.
    """

    before: Trace
    after: Trace
    step: int
    diverged_at: int | None
    certificate: Certificate

    def _card(self) -> Card:
        rows = []
        both = zip_longest(self.before.choices, self.after.choices)
        for number, (before, after) in enumerate(both, 1):
            rows.append([number, before or "", after or ""])
        facts = [("edited from step", self.step), ("diverged at step", self.diverged_at)]
        return Card("Fork of an answer", facts, ("step", "without edits", "with edits"), rows)

    def to_mapping(self) -> dict[str, object]:
        """Return it as plain values for JSON."""
        return {
            "before": self.before.to_mapping(),
            "after": self.after.to_mapping(),
            "certificate": self.certificate.to_mapping(),
            "step": self.step,
            "diverged_at": self.diverged_at,
        }


def fork(question: Question, *edits: Edit, step: int = 1) -> Fork:
    """Answer a question, then once more with edits that begin at a step.

    The first letter is chosen without the edit, the others with it::

        question = attnlab.ask("runs/sorting", "bcb")
        print(attnlab.fork(question, attnlab.ZeroHead(layer=0, head=0), step=2))

    Args:
        question: see `attnlab.look.questions`.
        edits: applied in their order, from the pass that makes the choice of `step` on, to all
            positions read then.
        step: from 1; the choices before it are those of the unedited answer.

    Returns:
        both answers, the first step at which they differ, and the certificate.

    Raises:
        WrongUsage: before the first pass, a layer, head, name or position that the model, the input
            or its answer cannot have; after it, the answer has no such step, or an edit landed
            nowhere.
    """
    check_edits("fork takes a question", question.model, edits)
    require_integer("step", step)
    _check_targets(question, edits)
    before = question.trace()
    last = max(1, len(before.steps))
    if step > last:
        has = f"{last} step{'s' * (last > 1)}, from 1 to {last}"
        raise WrongUsage(f"this answer has {has}; got {step}.")
    rest = question.after(before.choices[: step - 1])
    with edit(question.model, *edits, vocabulary=question.vocabulary) as certificate:
        values = rest.trace()
    after = replace(values, steps=(*before.steps[: step - 1], *values.steps))
    both = enumerate(zip_longest(before.choices, after.choices), 1)
    diverged_at = next((number for number, (one, other) in both if one != other), None)
    return Fork(before, after, step, diverged_at, certificate)


def _check_targets(question: Question, edits: Sequence[Edit]) -> None:
    """Raise where an edit names what this model, this input and its longest answer do not have."""
    Editor(question.model, edits, question.vocabulary, certify=False)
    inputs = question.prompt_inputs()
    more = max(getattr(question, "num_tokens", 1), 1) - 1  # the last token is never read
    longest = max(tensor.shape[1] for tensor in inputs.values()) + more
    texts = [inputs[name] for name in _ID_INPUTS if name in inputs]
    for change in edits:
        check_reach(change, question.model, longest, rows=1)
        if more == 0 and texts and change.names_tokens:
            Coverage(change, question.vocabulary).check_names(texts)
