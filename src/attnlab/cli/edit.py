"""attnlab edit: what a model answers when something inside it is changed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from attnlab.cli import terminal
from attnlab.cli.answers import show_fork
from attnlab.cli.asking import AS_IT_IS, ForPretrained, ask
from attnlab.cli.edits import read_edits
from attnlab.cli.keeping import check_new
from attnlab.cli.running import print_json
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.look.questions import Question
    from attnlab.operate import Edit

__all__ = ["edit", "edits_"]


def edit(
    run: str,
    /,
    *words: str,
    zero_head: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    cut_edge: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    other: Annotated[list[str] | None, Parameter(name="--edit", consume_multiple=True, negative="")] = None,
    edits: Path | None = None,
    from_step: int = 1,
    how: ForPretrained = AS_IT_IS,
    out: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Change something inside a model: the answer before and after, and the proof that the edit landed.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/; or a pretrained model: a folder, a GGUF file or a hub id.
    words
        The input, such as cab, or a text in quotes.
    zero_head
        Heads that shall say nothing: LAYER.HEAD, such as 0.1, of an encoder–decoder 'encoder 0.1', 'decoder 0.1' or
        'cross 0.1'; or PART.HEAD with a part's path.
    cut_edge
        Edges to cut, QUERY-KEY: positions or tokens, such as 3-0 or SEP-a. A token that is a number, or holds a dash,
        is written in double quotes: '"3"-"a-b"'.
    other
        Any edit, in quotes: its name, then its settings, such as "redirect-to-first layer=0 head=1".
    edits
        A JSON file with edits, as --out writes it.
    from_step
        The step of the answer, from 1, from which on the edits hold; the choices before it stay as they were.
    out
        A folder to make: the edits, both answers with the certificate, both recordings, figures, and a page that
        compares them.
    as_json
        Print both answers and the certificate as JSON.
    """
    from attnlab.operate.forking import fork

    wanted = read_edits(zero_head or (), cut_edge or (), other or (), edits)
    if out is not None:
        check_new(out)
    question = ask(run, words, how)
    _check_names(question, wanted)
    found = fork(question, *wanted, step=from_step)
    if out is not None:
        from attnlab.cli.keeping import keep_fork

        keep_fork(question, found, wanted, out, title=f"{Path(run).name}: {' '.join(words)}")
    if as_json:
        print_json({"edits": [each.to_json() for each in wanted], **found.to_mapping()})
        return 0
    show_fork(found, [repr(each) for each in wanted])
    if out is not None:
        terminal.say(f"page     {out / 'view.html'}")
    return 0


def _check_names(question: "Question", edits: "Sequence[Edit]") -> None:
    """Raise where tokens are named to a model that reads vectors."""
    from attnlab.operate.edits.targets import has_names, is_all

    if question.vocabulary is not None:
        return
    for each in edits:
        if any(has_names(target) for target in (each.query, each.key) if not is_all(target)):
            (words,) = question.passage().words.values()
            places = ", ".join(f"{place} is {word}" for place, word in enumerate(words))
            raise WrongUsage(f"{each!r}: this model reads vectors, which go by their positions: {places}.")


def edits_(*, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """List the edits there are, what each does, and what it is told beside where.

    Parameters
    ----------
    as_json
        Print them as JSON.
    """
    from attnlab.cli.edits import dashed
    from attnlab.operate.edits.edit import edit_kinds, own_fields

    rows = [
        (dashed(name), str(kind.__doc__).partition("\n")[0], " ".join(own_fields(kind)))
        for name, kind in sorted(edit_kinds().items())
    ]
    if as_json:
        print_json([dict(zip(("edit", "does", "settings"), row, strict=True)) for row in rows])
        return 0
    terminal.show_table(("edit", "what it does", "settings"), rows)
    terminal.say("where: layer= site= head= query= key= row= step=, as far as an edit has them", is_quiet=True)
    return 0
