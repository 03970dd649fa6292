"""attnlab look MODEL --document FILE: every head's summary over a long text, kept in a folder with its pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from attnlab.cli import terminal
from attnlab.cli.asking import is_foreign, open_model
from attnlab.cli.parsing import whole_number
from attnlab.cli.progress import progress
from attnlab.cli.running import print_json
from attnlab.errors import WrongUsage

__all__ = ["NO_DOCUMENT", "OfDocument", "look_at_document"]

_SHOWN = 6  # heads of each kind


@Parameter(name="*")
@dataclass(frozen=True)
class OfDocument:
    """The options that look has for a long document."""

    document: Annotated[
        Path | None, Parameter(help="A file with a long text in place of words: summaries of every head, into --out.")
    ] = None
    tiles: Annotated[
        int | None,
        Parameter(converter=whole_number, help="Of a document: cells along each axis of a map, at most (256)."),
    ] = None
    resume: Annotated[bool, Parameter(negative="", help="Of a document: go on with what was stopped.")] = False
    beyond: Annotated[
        bool, Parameter(negative="", help="Of a document: read more tokens than the model was made for.")
    ] = False

    def is_asked(self, name: str, words: Sequence[str], others: Sequence[str]) -> bool:
        """Say whether a document is to be read.

        Raises:
            WrongUsage: options that do not go together, or a run.
        """
        given = {"--tiles": self.tiles is not None, "--resume": self.resume, "--beyond": self.beyond}
        said = [option for option, is_given in given.items() if is_given]
        if self.document is None:
            if said:
                raise WrongUsage(f"{' and '.join(said)}: for a long text only; give it with --document FILE.")
            return False
        if words:
            raise WrongUsage("--document brings the text: leave the words out.")
        if others:
            raise WrongUsage(
                f"{' and '.join(others)}: not for a document, of which every head's weights are summarised."
            )
        if not is_foreign(name):
            raise WrongUsage(f"--document is for pretrained models; {name} is a run.")
        return True


NO_DOCUMENT = OfDocument()


def look_at_document(name: str, of: OfDocument, *, head: Sequence[str] | None, out: Path | None, as_json: bool) -> int:
    """Summarise a document, write its pages, and say what there is.

    Args:
        name: a pretrained model.
        of: the document, and how it is read.
        head: heads of which exact tiles are shown.
        out: the folder to make, or to go on with.
        as_json: print every head's numbers as JSON.
    """
    from attnlab.draw.documents import write_document
    from attnlab.look.documents import Progress, summarise_document
    from attnlab.look.documents.reading import read_text
    from attnlab.look.documents.storing import Folder
    from attnlab.look.summaries import Summarise

    assert of.document is not None
    if out is None:
        raise WrongUsage("--document writes as it reads: say into which folder with --out DIR.")
    if Folder(out).is_there and not of.resume:
        raise WrongUsage(f"{out} holds a document already: go on with it (--resume), or choose another folder.")
    text, model = read_text(of.document), open_model(name)
    try:
        with progress(str(of.document), is_quiet=as_json) as observer:

            def told(progress: Progress) -> None:
                if observer is not None:
                    observer.step(progress.done, progress.total, {})

            reduce = Summarise() if of.tiles is None else Summarise(tiles=of.tiles)
            document = summarise_document(
                model, text, out=out, reduce=reduce, keep=head or (), beyond=of.beyond, progress=told
            )
    except KeyboardInterrupt:
        if (out / "document.json").exists():
            terminal.complain(f"what is done is in {out}: the same command with --resume goes on with it.", 130)
        raise
    write_document(document)
    if as_json:
        print_json({"model": document.model, "tokens": document.length, "heads": document.table()})
        return 0
    rows = document.table()
    terminal.say(f"{document.model} read {document.length:,} tokens: {len(rows)} heads")
    for measure, what in (("previous", "the token before"), ("first", "the first token"), ("own", "itself")):
        best = sorted(rows, key=lambda row: -row[measure])[:_SHOWN]
        listed = ", ".join(f"{row['layer']}.{row['head']} {row[measure]:.2f}" for row in best)
        terminal.say(f"most on {what:16} {listed}")
    for page in ("report.html", "view.html", *(("tiles.html",) if document.kept else ())):
        terminal.say(f"page     {out / page}")
    if not document.kept:
        terminal.say("for exact tiles of a head: --head LAYER.HEAD, into another folder", is_quiet=True)
    return 0
