"""attnlab look MODEL --document FILE: summaries of every head over a long text, and their pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from attnlab.cli import terminal
from attnlab.cli.options import OptionalWholeNumber
from attnlab.cli.progress import progress
from attnlab.cli.prompts import is_pretrained, open_model
from attnlab.cli.runs import print_json
from attnlab.errors import WrongUsage

__all__ = ["NO_LONG_TEXT", "LongTextOptions", "summarize_long_text"]

_MAX_HEADS = 6  # listed for each measure
_MEASURES = {"previous": "the token before", "first": "the first token", "own": "itself"}


@Parameter(name="*")
@dataclass(frozen=True)
class LongTextOptions:
    """The options of look for a long text."""

    document: Annotated[
        Path | None,
        Parameter(
            help="A file with a long text to read instead of an input: every head is summarized, "
            "into --out."
        ),
    ] = None
    tiles: Annotated[
        OptionalWholeNumber,
        Parameter(help="With --document: the most cells on each side of a map (256)."),
    ] = None
    resume: Annotated[
        bool, Parameter(negative="", help="With --document: resume what was interrupted.")
    ] = False
    beyond: Annotated[
        bool,
        Parameter(
            negative="",
            help="With --document: allow a text that exceeds the model's context length.",
        ),
    ] = False

    def is_given(self, name: str, words: Sequence[str], others: Sequence[str]) -> bool:
        """Is there a long text to read?

        Args:
            name: a run or a pretrained model.
            words: the input, which a long text replaces.
            others: options that do not go with a long text.

        Raises:
            WrongUsage: options that do not go together, or a run.
        """
        own_options = {
            "--tiles": self.tiles is not None,
            "--resume": self.resume,
            "--beyond": self.beyond,
        }
        given = [option for option, is_given in own_options.items() if is_given]
        if self.document is None:
            if given:
                raise WrongUsage(
                    f"{' and '.join(given)}: for a long text only; give it with --document FILE."
                )
            return False
        if words:
            raise WrongUsage("--document brings the text: leave the words out.")
        if others:
            raise WrongUsage(
                f"{' and '.join(others)}: not with --document, which summarizes every head's "
                "weights."
            )
        if not is_pretrained(name):
            raise WrongUsage(f"--document is for pretrained models; {name} is a run.")
        return True


NO_LONG_TEXT = LongTextOptions()


def summarize_long_text(  # noqa: C901
    name: str,
    options: LongTextOptions,
    *,
    head: Sequence[str] | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Summarize every head over a long text, write the pages, and print the main findings.

    Args:
        name: a pretrained model.
        options: the text, and how it is read.
        head: heads whose exact tiles are kept and shown.
        out: the folder to create or to resume.
        as_json: print every head's numbers as JSON.
    """
    from attnlab.draw.long_text_report import write_document
    from attnlab.look.long_text import Progress, summarize_document
    from attnlab.look.long_text.files import Folder
    from attnlab.look.long_text.inputs import read_text
    from attnlab.look.summaries import Summarize

    assert options.document is not None
    if out is None:
        raise WrongUsage("--document needs a folder for its results: --out DIR.")
    if Folder(out).is_there and not options.resume:
        raise WrongUsage(
            f"{out} holds a long text already: resume it with --resume, or choose another folder."
        )
    text, model = read_text(options.document), open_model(name)
    try:
        with progress(str(options.document), is_quiet=as_json) as observer:

            def show_progress(progress: Progress) -> None:
                if observer is not None:
                    observer.step(progress.done, progress.total, {})

            reduce = Summarize() if options.tiles is None else Summarize(tiles=options.tiles)
            document = summarize_document(
                model,
                text,
                out=out,
                reduce=reduce,
                keep=head or (),
                beyond=options.beyond,
                progress=show_progress,
            )
    except KeyboardInterrupt:
        if (out / "document.json").exists():
            terminal.complain(
                f"the results so far are in {out}; to go on: the same command with --resume.", 130
            )
        raise
    write_document(document)
    if as_json:
        print_json({"model": document.model, "tokens": document.length, "heads": document.table()})
        return 0
    rows = document.table()
    terminal.say(f"{document.model} read {document.length:,} tokens: {len(rows)} heads")
    for measure, what in _MEASURES.items():
        best = sorted(rows, key=lambda row: -row[measure])[:_MAX_HEADS]
        listed = ", ".join(f"{row['layer']}.{row['head']} {row[measure]:.2f}" for row in best)
        terminal.say(f"most on {what:16} {listed}")
    pages = ["report.html", "view.html"]
    if document.kept:
        pages.append("tiles.html")
    for page in pages:
        terminal.say(f"page     {out / page}")
    if not document.kept:
        terminal.say(
            "for exact tiles of a head: --head LAYER.HEAD, into another folder", is_quiet=True
        )
    return 0
