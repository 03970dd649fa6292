"""The folder that `attnlab look` and `attnlab edit` write with --out: recordings, figures, page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnlab.cli.answers import fork_rows
from attnlab.cli.terminal import say
from attnlab.core.store import explained, write_json
from attnlab.errors import CouldNotRun, typed

if TYPE_CHECKING:
    from attnlab.edits import Edit
    from attnlab.edits.forks import Fork
    from attnlab.look import Recording
    from attnlab.look.questions import Question

_KINDS = ("png", "svg", "pdf")
_MAX_HEADS = 16  # with a figure each; the page shows all
_TOLERANCE = 1e-6  # weights that differ by less count as equal, as on the page
_MAX_HEADS_TOGETHER = 64  # in one figure


def check_new_folder(folder: Path | None) -> None:
    """Raise `CouldNotRun` for a folder that holds files: nothing is ever overwritten."""
    if folder is None:
        return
    with explained(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise CouldNotRun(f"{folder} is there already; name another folder with --out.")


def show_pages(out: Path | None, *pages: str) -> None:
    """Print where the pages of a folder are, and the command that opens them."""
    there = [out / page for page in pages if (out / page).is_file()] if out is not None else []
    for page in there:
        say(f"page     {page}")
    if there:
        say(f"look at  attnlab open {typed(out)}", is_quiet=True)


def save_recording(
    recording: "Recording",
    folder: Path,
    *,
    title: str,
    opens: tuple[str, int] | Literal["telling"] | None = None,
) -> None:
    """Save a recording, figures of its heads, and the page, which opens with a site's head."""
    from attnlab.draw.attention import draw_heads
    from attnlab.draw.view import write_view

    create_folder(folder)
    recording.save(folder / "recording")
    weights = _weights_of(recording)
    if not weights:
        return
    if sum(recording.shape(site)[1] for site in weights) <= _MAX_HEADS_TOGETHER:
        _save(draw_heads(recording, sites=weights), folder / "figures" / "all-heads")
    _draw_each(recording, None, weights, folder)
    write_view(folder / "view.html", recording.select(weights), title=title, opens=opens)


def save_fork(
    question: "Question", fork: "Fork", edits: "Sequence[Edit]", folder: Path, *, title: str
) -> None:
    """Save a fork: edits, both answers, the certificate, recordings, figures and the page.

    Both recordings are of the tokens of the unedited answer. Heads get a figure if their weights
    differ.
    """
    from attnlab.draw.attention import draw_trace
    from attnlab.draw.view import write_view
    from attnlab.edits import edit
    from attnlab.look.questions import recorded

    inputs = question.pass_inputs()
    before = recorded(question, inputs=inputs)
    with edit(question.model, *edits, vocabulary=question.vocabulary):
        after = recorded(question, inputs=inputs)
    create_folder(folder)
    write_json(folder / "edits.json", [edit.to_json() for edit in edits])
    write_json(folder / "answers.json", fork.to_mapping())
    for name, recording in (("before", before), ("after", after)):
        recording.save(folder / name)
    for name, trace in (("before", fork.before), ("after", fork.after)):
        has_few = len(trace.attention) <= _MAX_HEADS
        _save(draw_trace(trace, heads=None if has_few else []), folder / "figures" / name)
    _draw_each(before, after, _weights_of(before), folder)
    unedited = " ".join(fork.before.choices)
    edited = " ".join(fork.after.choices)
    answer = f"{unedited} → {edited}, edited"
    if unedited == edited:
        answer = f"{unedited}, as before"
    notes = [
        ("Answer", answer),
        ("Maps", "of the tokens of the unedited answer, read without and with the edits"),
        ("Certificate", str(fork.certificate)),
    ]
    steps = fork_rows(fork)
    write_view(
        folder / "view.html",
        before,
        after,
        title=title,
        names=("unedited", "edited"),
        notes=notes,
        table=[("step", "before", "after", "change of probabilities"), *steps] if steps else (),
        opens="telling",
    )


def create_folder(folder: Path) -> None:
    """Create the folder of --out.

    Raises:
        CouldNotRun: it holds files.
    """
    check_new_folder(folder)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _draw_each(
    recording: "Recording", other: "Recording | None", sites: Sequence[str], folder: Path
) -> None:
    """Draw each head, or its difference if two recordings differ; none if there are too many."""
    from attnlab.draw.attention import draw_difference, draw_head

    heads = [(site, head) for site in sites for head in range(recording.shape(site)[1])]
    if len(heads) > _MAX_HEADS:
        return
    for site, head in heads:
        name = f"{site.removesuffix('weights').rstrip('.') or 'head'}.{head}"
        if other is None:
            _save(draw_head(recording, head, site=site), folder / "figures" / name)
        elif bool((recording[site][:, head] - other[site][:, head]).abs().max() > _TOLERANCE):
            figure = draw_difference(recording, other, head, site=site)
            _save(figure, folder / "figures" / f"difference.{name}")


def _save(figure: object, path: Path) -> None:
    from attnlab.draw.attention import save_figure

    path.parent.mkdir(exist_ok=True)
    for kind in _KINDS:
        save_figure(figure, path.with_name(f"{path.name}.{kind}"))  # type: ignore[arg-type]


def _weights_of(recording: "Recording") -> list[str]:
    return [site for site in recording if site.rpartition(".")[2] == "weights"]
