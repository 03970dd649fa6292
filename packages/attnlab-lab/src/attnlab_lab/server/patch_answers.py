"""Activation patching of two texts: which place carries the answer. A part of the process with
torch."""

from torch import nn

from attnlab.edits.effects import patch_all
from attnlab.edits.effects.pairs import answer_position
from attnlab.errors import WrongUsage, not_none
from attnlab.look.questions import Question


def patch_map(
    model: nn.Module, clean: str, corrupted: str, target: str, kind: str
) -> dict[str, object]:
    """Patch a clean text into a corrupted one; return the map, the metric and its two ends.

    target: the answer that is measured; empty for what the model says of the clean text. kind: what
    is patched, see `patch_all`.

    Raises:
        WrongUsage: texts of different lengths, an unknown answer, or a model without one answer.
    """
    patched = patch_all(model, clean, corrupted, kind, target=target.strip() or None)
    [table, *_] = patched.number_tables()
    [(answer, rival)] = patched.answers
    chances = not_none(patched.chances)
    return {
        "kind": kind,
        "layers": list(table.rows),
        "columns": list(table.columns),
        "axes": [table.row_title, table.column_title],
        "shares": [list(row) for row in table.values],
        "answer": answer,
        "rival": rival,
        "ends": [float(patched.ends.clean), float(patched.ends.corrupted)],
        "probabilities": [float(chances.clean), float(chances.corrupted)],
        "caution": patched.caution,
    }


def has_one_answer(question: Question) -> bool:
    """Does the model give one answer to this text, which patching can measure?"""
    try:
        answer_position(question)
    except WrongUsage:
        return False
    return True
