"""attnlab search: where in many texts a head does something."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli.failures import writing_to
from attnlab.cli.options import WHOLE_CORPUS, AsJson, CorpusOptions, Strings, Switch, WholeNumber
from attnlab.cli.output_folder import show_pages
from attnlab.cli.progress import corpus_lines, progress
from attnlab.cli.prompts import check_corpus_command, open_reader
from attnlab.cli.terminal import print_json, say, show_table
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.look.corpus import CorpusSearch, Example

_MAX_HEADS, _MAX_EXAMPLES = 10, 5  # that are printed


def search(
    model: str,
    /,
    *,
    corpus: Path,
    measure: str = "previous",
    reading: CorpusOptions = WHOLE_CORPUS,
    head: Strings = None,
    lowest: Switch = False,
    top: WholeNumber = 20,
    out: Path | None = None,
    resume: Switch = False,
    as_json: AsJson = False,
) -> int:
    """Search many texts for what a pretrained model's heads do: which heads, and at which tokens.

    Parameters
    ----------
    model
        A pretrained model: a folder, a GGUF file or a hub id.
    corpus
        The texts: a .csv, .tsv, .jsonl or .parquet file, or a .txt file with one text per line.
    measure
        What is measured of each head: previous, first, own, duplicate, induction, largest, entropy,
        distance, punctuation, number, name, special, or token:REGEX for the weight on tokens that
        match a pattern as a whole.
    head
        Heads to measure, LAYER.HEAD such as 3.5, or a layer such as 3; by default all.
    lowest
        Rank by the smallest values instead of the largest.
    top
        How many examples to keep for each head, each from another text.
    out
        A folder to create: a page, tables as Parquet (CSV without pyarrow), and what --resume
        needs.
    resume
        Resume the search in --out, after an interruption or with a corpus that has grown.
    as_json
        Print the result as JSON.
    """
    from attnlab.draw.corpus import write_corpus_page
    from attnlab.look.corpus import Corpus, search_corpus
    from attnlab.look.corpus.measures import measure_of
    from attnlab.look.corpus.result import search_folder

    measure_of(measure)
    if measure == "token:":
        raise WrongUsage(
            "token: needs a pattern for a whole token, such as 'token:film|films' or "
            "'token:[A-Z].*'."
        )
    folder = None if out is None else search_folder(out)
    tune = " To search for settings: attnlab tune."
    check_corpus_command("search", model, folder, resume=resume, hint=tune)
    opened, texts = open_reader(model), Corpus(corpus, **vars(reading))
    again = "the same command with --resume."
    with writing_to(out, "search.json", again), progress(str(corpus), is_quiet=as_json) as observer:
        result = search_corpus(
            opened,
            texts,
            measure,
            heads=head,
            out=out,
            top=top,
            lowest=lowest,
            progress=corpus_lines(observer),
        )
    if out is not None:
        write_corpus_page(result, out / "page.html", heads=list(result.heads) if head else None)
    if as_json:
        examples = {name: list(map(asdict, result.examples(name))) for name in result.heads}
        form = {"measure": measure, "counts": result.counts, "heads": result.table()}
        print_json({**form, "examples": examples})
        return 0
    _show(result)
    show_pages(out, "page.html")
    return 0


def _show(result: "CorpusSearch") -> None:
    rows = [row for row in result.table() if row["count"]]
    say(", ".join(f"{name} {count:,}" for name, count in result.counts.items() if count))
    if not rows:
        hint = ""
        if result.measure.startswith("token:"):
            hint = " A pattern must match a whole token: token:film.* for films."
        say(f"these texts have no token to measure for {result.measure!r}.{hint}")
        return
    shown = []
    for row in rows[:_MAX_HEADS]:
        interval = f"{row['low']:.3f} to {row['high']:.3f}"
        shown.append([row["head"], f"{row['mean']:.3f}", interval, f"{row['median']:.3f}"])
    show_table(["head", result.measure, "95 % interval", "median"], shown)
    best = rows[0]["head"]
    say(f"head {best}, strongest examples (‹query›, «key»):")
    for example in result.examples(best)[:_MAX_EXAMPLES]:
        say(f"  {example.value:.3f}  {_marked(example)}")


def _marked(example: "Example") -> str:
    """Join the tokens around an example, with the query in ‹› and the key in «»."""
    words = []
    for place, token in example.context(6):
        word = token
        if place == example.key:
            word = f"«{word}»"
        if place == example.query:
            word = f"‹{word}›"
        words.append(word)
    contain_blanks = any("␣" in token for token in example.tokens)
    return ("" if contain_blanks else " ").join(words)
