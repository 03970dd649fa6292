"""attnlab find: where in many texts a head does something."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from attnlab.cli import terminal
from attnlab.cli.asking import check_reads, is_foreign, open_model
from attnlab.cli.parsing import whole_number
from attnlab.cli.progress import progress
from attnlab.cli.running import print_json
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.look.corpus import Example, Found, Progress

__all__ = ["find"]

_HEADS, _EXAMPLES = 10, 5  # that are printed
_SECONDS = 10.0  # from one word on how far it is to the next


def find(
    model: str,
    /,
    *,
    corpus: Path,
    measure: str = "previous",
    head: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    column: str = "text",
    lowest: Annotated[bool, Parameter(negative="")] = False,
    top: Annotated[int, Parameter(converter=whole_number)] = 20,
    limit: Annotated[int | None, Parameter(converter=whole_number)] = None,
    max_length: Annotated[int | None, Parameter(converter=whole_number)] = None,
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Find where in many texts the heads of a pretrained model do something: which head most, and at which tokens.

    Parameters
    ----------
    model
        A pretrained model: a folder, a GGUF file or a hub id.
    corpus
        Texts: a file ending in .csv, .tsv, .jsonl, .parquet, or .txt with a text a line.
    measure
        What they do: previous, first, own, duplicate, induction, largest, entropy, distance, punctuation, number,
        name, special, or token:REGEX for the weight on tokens of one's own choice, which match it as a whole.
    head
        Heads to measure, LAYER.HEAD such as 3.5, or a layer such as 3; without it all.
    column
        The column of the texts.
    lowest
        The least values instead of the largest.
    top
        Examples for each head, each of another text.
    limit
        Rows of the corpus, at most.
    max_length
        Tokens of a text, at most; longer texts are cut, and counted.
    out
        A folder to make: a page, tables as Parquet (CSV without pyarrow), and all that is needed to go on.
    resume
        Go on with the search in --out that was stopped, or whose corpus has more.
    as_json
        Print it as JSON.
    """
    from attnlab.look.corpus import Corpus, search_corpus
    from attnlab.look.corpus.keeping import is_there
    from attnlab.look.corpus.measures import measure_of

    if not is_foreign(model):
        raise WrongUsage(f"find is for pretrained models; {model} is a run: in Python, Corpus takes encode=.")
    measure_of(measure)
    if measure == "token:":
        raise WrongUsage(
            "token: needs a pattern for the whole of a token, such as 'token:film|films' or 'token:[A-Z].*'."
        )
    if resume and out is None:
        raise WrongUsage("--resume needs --out and the folder of the search.")
    if out is not None and is_there(out) and not resume:
        raise WrongUsage(f"{out} holds a search already: go on with it (--resume), or choose another folder.")
    opened = open_model(model)
    check_reads(opened)
    last = [time.monotonic()]
    try:
        with progress(str(corpus), is_quiet=as_json) as observer:

            def told(progress: "Progress") -> None:
                if observer is not None and time.monotonic() - last[0] > _SECONDS:
                    last[0] = time.monotonic()
                    observer.tell(
                        f"{progress.texts:,} texts, {progress.tokens:,} tokens, {progress.rate:,.0f} a second"
                    )

            texts = Corpus(corpus, column=column, limit=limit, max_length=max_length)
            found = search_corpus(opened, texts, measure, heads=head, out=out, top=top, lowest=lowest, progress=told)
    except KeyboardInterrupt:
        if out is not None and (out / "search.json").exists():
            terminal.complain(f"what is done is in {out}: the same command with --resume goes on with it.", 130)
        raise
    if out is not None:
        from attnlab.draw.corpus import write_corpus_page

        write_corpus_page(found, out / "page.html", heads=None if head is None else list(found.heads))
    if as_json:
        examples = {name: [_plain(each) for each in found.examples(name)] for name in found.heads}
        print_json({"measure": measure, "counts": found.counts, "heads": found.table(), "examples": examples})
    else:
        _show(found)
        if out is not None:
            terminal.say(f"page     {out / 'page.html'}")
    return 0


def _show(found: "Found") -> None:
    rows = [row for row in found.table() if row["count"]]
    terminal.say(", ".join(f"{name} {count:,}" for name, count in found.counts.items() if count))
    if not rows:
        hint = " A pattern is of the whole token: token:film.* for films." if found.measure.startswith("token:") else ""
        terminal.say(f"nowhere in these texts is there anything to measure for {found.measure!r}.{hint}")
        return
    shown = [
        [row["head"], f"{row['mean']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", f"{row['median']:.3f}"]
        for row in rows[:_HEADS]
    ]
    terminal.show_table(["head", found.measure, "95 % interval", "median"], shown)
    best = rows[0]["head"]
    terminal.say(f"head {best}, where most (‹who looks›, «what is looked at»):")
    for each in found.examples(best)[:_EXAMPLES]:
        terminal.say(f"  {each.value:.3f}  {_marked(each)}")


def _marked(example: "Example") -> str:
    """Write the tokens around, who looks and what is looked at in their signs."""
    words = []
    for place, token in example.context(6):
        word = f"«{token}»" if place == example.key else token
        words.append(f"‹{word}›" if place == example.query else word)
    is_spaced = any("␣" in token for token in example.tokens)  # then tokens bring their own blanks
    return ("" if is_spaced else " ").join(words)


def _plain(example: "Example") -> dict[str, object]:
    return {**example._asdict(), "tokens": list(example.tokens)}
