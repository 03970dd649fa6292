"""attnlab edit: a model's answer before and after an edit. attnlab edits: the list of edits."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from attnlab.cli import terminal
from attnlab.cli.answers import show_fork
from attnlab.cli.edit_syntax import read_edits
from attnlab.cli.options import NO_OPTIONS, AsJson, PretrainedOptions, Strings
from attnlab.cli.output_folder import check_new_folder, save_fork, show_pages
from attnlab.cli.prompts import ask, page_title
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.edits import Edit
    from attnlab.look.questions import Question


_COMMON = ("head", "row")
"""Where any edit applies, beside layer and site."""


def edit(
    run: str,
    /,
    *words: str,
    zero_head: Strings = None,
    cut_edge: Strings = None,
    other: Annotated[
        list[str] | None, Parameter(name="--edit", consume_multiple=True, negative="")
    ] = None,
    edits: Path | None = None,
    from_step: int = 1,
    model_options: PretrainedOptions = NO_OPTIONS,
    out: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Edit a model: show its answer before and after, and a certificate that the edit took effect.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/; or a pretrained model: a folder, a GGUF file or a
        hub id.
    words
        The input, such as cab, or a text in quotes.
    zero_head
        Heads whose output is set to zero: LAYER.HEAD, such as 0.1; in an encoder–decoder 'encoder
        0.1', 'decoder 0.1' or 'cross 0.1'; or PART.HEAD with the path of a module.
    cut_edge
        Attention edges to cut, QUERY-KEY, as positions or tokens: 3-0 or SEP-a. A token that is a
        number or contains a dash goes in double quotes: '"3"-"a-b"'.
    other
        Any other edit in quotes, its name and its settings: "redirect-to-first layer=0 head=1".
        `attnlab edits` lists them.
    edits
        A JSON file with edits, as --out writes it.
    from_step
        The first step of the answer, from 1, at which the edits apply; earlier choices are kept.
    out
        A folder to create: the edits, both answers with the certificate, both recordings, figures,
        and a page that compares the recordings.
    as_json
        Print both answers and the certificate as JSON.
    """
    from attnlab.edits.forks import fork

    wanted = read_edits(zero_head or (), cut_edge or (), other or (), edits)
    check_new_folder(out)
    question = ask(run, words, model_options)
    _check_names(question, wanted)
    result = fork(question, *wanted, step=from_step)
    if out is not None:
        title = page_title(run, question.model, words)
        save_fork(question, result, wanted, out, title=title)
    if as_json:
        edits_json = [change.to_json() for change in wanted]
        terminal.print_json({"edits": edits_json, **result.to_mapping()})
        return 0
    show_fork(result, list(map(repr, wanted)))
    show_pages(out, "view.html")
    return 0


def _check_names(question: "Question", edits: "Sequence[Edit]") -> None:
    """Raise `WrongUsage` where an edit names tokens and the model reads vectors."""
    if question.vocabulary is not None:
        return
    for edit in edits:
        if edit.names_tokens:
            (words,) = question.pass_inputs().words.values()
            places = ", ".join(f"{place} is {word}" for place, word in enumerate(words))
            raise WrongUsage(
                f"{edit!r}: this model reads vectors, so name positions, not tokens: {places}."
            )


def edits_(*, as_json: AsJson = False) -> int:
    """List all edits with their effects and settings.

    Parameters
    ----------
    as_json
        Print the list as JSON.
    """
    from attnlab.cli.edit_syntax import dashed
    from attnlab.edits.edit import edit_kinds, field_words

    rows = []
    for name, kind in sorted(edit_kinds().items()):
        does = str(kind.__doc__).partition("\n")[0]
        places = [f"{field}=" for field in kind.NARROWS if field not in _COMMON]
        rows.append((dashed(name), does, " ".join([*places, *field_words(kind)])))
    if as_json:
        terminal.print_rows(("edit", "does", "settings"), rows)
        return 0
    terminal.show_table(("edit", "what it does", "settings"), rows)
    terminal.say(
        "each also takes layer= or site=, head= and row=: "
        "--edit 'cut-edge layer=0 head=1 query=3 key=0'; [in brackets]: has a default",
        is_quiet=True,
    )
    return 0
