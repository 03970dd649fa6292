"""attnlab census: what every head of a model does over a corpus, and whether it matters."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from attnlab.cli.failures import writing_to
from attnlab.cli.options import (
    HERE,
    WHOLE_CORPUS,
    AsJson,
    CorpusOptions,
    EngineOptions,
    OptionalWholeNumber,
    Strings,
    Switch,
    WholeNumber,
)
from attnlab.cli.output_folder import show_page
from attnlab.cli.progress import progress
from attnlab.cli.prompts import is_pretrained, open_model, require_tokenizer
from attnlab.cli.terminal import print_json, say, show_table
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.look.census import Census
    from attnlab.look.corpus import Progress
    from attnlab.train.observer import Observer

census = App(
    name="census", help="Count what every head of a pretrained model does over many texts."
)

_MAX_HEADS = 12  # that are printed
_SECONDS = 10.0  # between two lines of progress


@census.default
def count(
    model: str,
    /,
    *,
    corpus: Path,
    reading: CorpusOptions = WHOLE_CORPUS,
    head: Strings = None,
    effects: WholeNumber = 32,
    shard: str | None = None,
    shares: OptionalWholeNumber = None,
    engine_options: EngineOptions = HERE,
    out: Path | None = None,
    resume: Switch = False,
    as_json: AsJson = False,
) -> int:
    """Count what every head of a pretrained model does over many texts, and whether it matters.

    Parameters
    ----------
    model
        A pretrained model: a folder, a GGUF file or a hub id.
    corpus
        The texts: a .csv, .tsv, .jsonl or .parquet file, or a .txt file with one text per line.
    head
        Heads to count, LAYER.HEAD such as 3.5, or a layer such as 3; by default all.
    effects
        How many texts, drawn by lot, to measure effects on, from 2 to 64; 0 for none.
    shard
        Count one share of the corpus alone, such as 2/7; `attnlab census merge` adds them up.
    shares
        Count the corpus in so many shares on --workers or --engine, and add them up.
    out
        A folder to create: a page, tables, and what --resume and merge need.
    resume
        Resume the census in --out.
    as_json
        Print the result as JSON.
    """
    from attnlab.experiments.census import census as count_all
    from attnlab.experiments.census import census_in_shares
    from attnlab.experiments.sweeps.executors import Where
    from attnlab.look.corpus import Corpus

    if not is_pretrained(model):
        raise WrongUsage(
            f"census is for pretrained models; {model} is a run: in Python, Corpus takes encode=."
        )
    share = (1, 1) if shard is None else _share_of(shard)
    _check_folder(out, resume)
    texts = Corpus(corpus, **vars(reading))
    again = "the same command with --resume."
    with writing_to(out, "census.json", again), progress(str(corpus), is_quiet=as_json) as observer:
        if shares is None and engine_options == HERE:
            opened = open_model(model)
            require_tokenizer(opened)
            result = count_all(
                opened,
                texts,
                heads=head,
                effects=effects,
                shard=share,
                out=out,
                progress=_progress_lines(observer),
            )
        else:
            if out is None or shard is not None:
                raise WrongUsage("--shares, --workers and --engine need --out, without --shard.")
            workers = engine_options.workers
            result = census_in_shares(
                model,
                texts,
                shares or 2 * (workers or 2),
                Where(engine_options.engine, workers, engine_options.address),
                out=out,
                heads=head,
                effects=effects,
                observer=observer,
            )
    return _show(result, out, as_json=as_json)


@census.command
def merge(*shards: Path, out: Path, as_json: AsJson = False) -> int:
    """Add up the censuses of shares of one corpus.

    Parameters
    ----------
    shards
        The folders of the shares, such as census-1 census-2.
    out
        A folder to create.
    as_json
        Print the result as JSON.
    """
    from attnlab.look.census import merge_censuses

    return _show(merge_censuses(shards, out=out), out, as_json=as_json)


def _share_of(shard: str) -> tuple[int, int]:
    share, _, shards = shard.partition("/")
    if not (share.isdecimal() and shards.isdecimal() and 1 <= int(share) <= int(shards)):
        raise WrongUsage(f"--shard is a share such as 2/7, the second of seven; got {shard!r}.")
    return int(share), int(shards)


def _check_folder(out: Path | None, resume: bool) -> None:
    from attnlab.look.census.result import CensusFolder

    if resume and out is None:
        raise WrongUsage("--resume needs --out with the folder of the census.")
    if out is not None and CensusFolder(out).is_there and not resume:
        raise WrongUsage(
            f"{out} holds a census already: resume it with --resume, or choose another folder."
        )


def _progress_lines(observer: "Observer | None") -> "Callable[[Progress], None]":
    """Return a function that prints the progress now and then."""
    printed_at = time.monotonic()

    def show(progress: "Progress") -> None:
        nonlocal printed_at
        if observer is not None and time.monotonic() - printed_at > _SECONDS:
            printed_at = time.monotonic()
            read = f"{progress.texts:,} texts, {progress.tokens:,} tokens"
            observer.tell(f"{read}, {progress.rate:,.0f} a second")

    return show


def _show(result: "Census", out: Path | None, *, as_json: bool) -> int:
    from attnlab.draw.census import write_census_page

    if out is not None:
        write_census_page(result, out / "page.html")
        result.write_tables(out)
    rows = result.table()
    if as_json:
        print_json({"counts": result.counts, "missing": result.missing, "heads": rows})
        return 0
    say(", ".join(f"{name} {count:,}" for name, count in result.counts.items() if count))
    if result.missing:
        say(f"blocks of 256 rows that no share read: {', '.join(map(str, result.missing))}")
    has_effects = bool(result.effects)
    columns = ["head", "kind", "previous", "first"]
    if has_effects:
        rows.sort(key=lambda row: -abs(row["zeroed"]))
        columns += ["on repeats", f"{result.effects[0]['metric']} without it [95 %]"]
    shown = []
    for row in rows[:_MAX_HEADS]:
        cells = [row["head"], row["kind"], _number(row["previous"]), _number(row["first"])]
        if has_effects:
            ends = f"[{row['zeroed_low']:+.3f}, {row['zeroed_high']:+.3f}]"
            mark = "*" * bool(row["zeroed_matters"])
            cells += [_number(row["induction_on_repeats"]), f"{row['zeroed']:+.3f}{mark} {ends}"]
        shown.append(cells)
    show_table(columns, shown)
    if len(rows) > _MAX_HEADS:
        say(f"{len(rows) - _MAX_HEADS} more heads: --out writes a page of all, --json prints them")
    show_page(out, "page.html")
    return 0


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
