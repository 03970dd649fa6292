"""What --out of `attnlab look` and `attnlab edit` leaves: recordings, figures, edits, a page that opens from disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import CouldNotRun
from attnlab.files import explained, write_json

if TYPE_CHECKING:
    from attnlab.look import Recording
    from attnlab.look.questions import Question
    from attnlab.operate import Edit
    from attnlab.operate.forking import Fork

__all__ = ["check_new", "keep_fork", "keep_recording", "new_folder"]

_KINDS = ("png", "svg", "pdf")
_MOST_HEADS = 16  # that get a figure of their own; the page shows all
_SAME = 1e-6  # a weight that differs by less is the same, on the page too
_MOST_TOGETHER = 64  # that are drawn in one figure


def check_new(folder: Path) -> None:
    """Raise unless a folder is not there yet, or empty: nothing is ever written over."""
    with explained(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise CouldNotRun(f"{folder} is there already; name another with --out.")


def new_folder(folder: Path) -> Path:
    """Make a folder, or take an empty one."""
    check_new(folder)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def keep_recording(recording: "Recording", folder: Path, *, title: str) -> None:
    """Write a recording, figures of where each head looked, and the page."""
    from attnlab.draw.attention import draw_heads
    from attnlab.draw.view import write_view

    new_folder(folder)
    recording.save(folder / "recording")
    weights = _weights_of(recording)
    if not weights:
        return
    if sum(recording.shape(site)[1] for site in weights) <= _MOST_TOGETHER:
        _save(draw_heads(recording, sites=weights), folder / "figures" / "all-heads")
    _draw_each(recording, None, weights, folder)
    write_view(folder / "view.html", recording.select(weights), title=title)


def keep_fork(question: "Question", fork: "Fork", edits: "Sequence[Edit]", folder: Path, *, title: str) -> None:
    """Write the edits, both answers with the certificate, a recording of the same passage without and with the edits,
    figures of both answers and of every head whose weights differ, and the page that compares them.
    """
    from attnlab.draw.attention import draw_trace
    from attnlab.draw.view import write_view
    from attnlab.look.questions import recorded
    from attnlab.operate import edit

    passage = question.passage()
    before = recorded(question, passage=passage)
    with edit(question.model, *edits, vocabulary=question.vocabulary):
        after = recorded(question, passage=passage)
    new_folder(folder)
    write_json(folder / "edits.json", [each.to_json() for each in edits])
    write_json(folder / "answers.json", fork.to_mapping())
    for name, recording in (("before", before), ("after", after)):
        recording.save(folder / name)
    for name, trace in (("before", fork.before), ("after", fork.after)):
        has_few = len(trace.attention) <= _MOST_HEADS
        _save(draw_trace(trace, heads=None if has_few else []), folder / "figures" / name)
    _draw_each(before, after, _weights_of(before), folder)
    answers = [" ".join(step.choice for step in each.steps) for each in (fork.before, fork.after)]
    notes = [
        ("Answer", f"{answers[0]} → {answers[1]}, edited" if answers[0] != answers[1] else f"{answers[0]}, as before"),
        ("Maps", "of the tokens of the unedited answer, read without and with the edits"),
        ("Certificate", str(fork.certificate)),
    ]
    write_view(folder / "view.html", before, after, title=title, names=("unedited", "edited"), notes=notes)


def _draw_each(recording: "Recording", other: "Recording | None", sites: Sequence[str], folder: Path) -> None:
    """Draw each head, or what two recordings of it differ in, if they do; of many none."""
    from attnlab.draw.attention import draw_difference, draw_head

    heads = [(site, head) for site in sites for head in range(recording.shape(site)[1])]
    for site, head in heads if len(heads) <= _MOST_HEADS else ():
        name = f"{site.removesuffix('weights').rstrip('.') or 'head'}.{head}"
        if other is None:
            _save(draw_head(recording, head, site=site), folder / "figures" / name)
        elif bool((recording[site][:, head] - other[site][:, head]).abs().max() > _SAME):
            _save(draw_difference(recording, other, head, site=site), folder / "figures" / f"difference.{name}")


def _save(figure: object, path: Path) -> None:
    from attnlab.draw.attention import save_figure

    path.parent.mkdir(exist_ok=True)
    for kind in _KINDS:
        save_figure(figure, path.with_name(f"{path.name}.{kind}"))  # type: ignore[arg-type]


def _weights_of(recording: "Recording") -> list[str]:
    return [site for site in recording if site.rpartition(".")[2] == "weights"]
