"""attnlab look MODEL --document FILE: summaries of every head over a long text, and their pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli.failures import writing_to
from attnlab.cli.options import LongTextOptions
from attnlab.cli.output_folder import show_pages
from attnlab.cli.progress import counting
from attnlab.cli.prompts import is_pretrained, open_model
from attnlab.cli.terminal import print_json, say
from attnlab.errors import WrongUsage, not_none

if TYPE_CHECKING:
    from attnlab.look.long_text import Document

_MAX_HEADS = 6  # listed for each measure
_MEASURES = {"previous": "the token before", "first": "the first token", "own": "itself"}


def is_long_text(
    options: LongTextOptions, name: str, words: Sequence[str], others: Sequence[str]
) -> bool:
    """Is there a long text to read?

    Args:
        options: those of a long text.
        name: a run or a pretrained model.
        words: the input, which a long text replaces.
        others: options that do not go with a long text.

    Raises:
        WrongUsage: options that do not go together, or a run.
    """
    if options.document is None:
        names = " and ".join(options.typed_names())
        if names:
            raise WrongUsage(f"{names}: for a long text only; give it with --document FILE.")
        return False
    if words:
        raise WrongUsage("--document brings the text: leave the words out.")
    if others:
        raise WrongUsage(
            f"{' and '.join(others)}: not with --document, which summarizes every head's weights."
        )
    if not is_pretrained(name):
        raise WrongUsage(f"--document is for pretrained models; {name} is a run.")
    return True


def summarize_long_text(
    name: str, options: LongTextOptions, *, out: Path | None, as_json: bool
) -> int:
    """Summarize every head over a long text, write the pages, and print the main findings.

    Args:
        name: a pretrained model.
        options: the text, and how it is read.
        out: the folder to create or to resume.
        as_json: print every head's numbers as JSON.
    """
    from attnlab.draw.long_text_report import write_document
    from attnlab.look.long_text import summarize_document
    from attnlab.look.long_text.inputs import read_text
    from attnlab.look.long_text.long_text import document_folder
    from attnlab.look.summaries import Summarize

    if out is None:
        raise WrongUsage("--document needs a folder for its results: --out DIR.")
    if document_folder(out).is_there and not options.resume:
        raise WrongUsage(
            f"{out} holds a long text already: resume it with --resume, or choose another folder."
        )
    text, model = read_text(not_none(options.document)), open_model(name)
    reduce = Summarize()
    if options.tiles is not None:
        reduce = Summarize(tiles=options.tiles)
    title, again = str(options.document), "the same command with --resume."
    with writing_to(out, "document.json", again), counting(title, is_quiet=as_json) as tell:
        document = summarize_document(
            model,
            text,
            out=out,
            reduce=reduce,
            beyond=options.beyond,
            progress=lambda now: tell(now.done, now.total),
        )
    write_document(document)
    if as_json:
        print_json({"model": document.model, "tokens": document.length, "heads": document.table()})
    else:
        _show(document, out)
    return 0


def _show(document: "Document", out: Path) -> None:
    rows = document.table()
    say(f"{document.model} read {document.length:,} tokens: {len(rows)} heads")
    for measure, what in _MEASURES.items():
        best = sorted(rows, key=lambda row: -row[measure])[:_MAX_HEADS]
        listed = ", ".join(f"{row['layer']}.{row['head']} {row[measure]:.2f}" for row in best)
        say(f"most on {what:16} {listed}")
    show_pages(out, "report.html", "view.html")
