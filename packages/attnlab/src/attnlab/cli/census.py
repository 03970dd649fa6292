"""attnlab census: what every head of a model does over a corpus, and whether it matters."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from attnlab.cli.output_folder import show_pages
from attnlab.cli.progress import corpus_lines, counting, progress, steps_of
from attnlab.cli.prompts import check_corpus_command, open_model, open_reader
from attnlab.cli.terminal import duration, print_json, say, show_table
from attnlab.display import card_of
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.experiments.census import CensusRate
    from attnlab.look.census import Census

census = App(
    name="census", help="Count what every head of a pretrained model does over many texts."
)

_MAX_HEADS = 12  # that are printed


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
    estimate: Switch = False,
    price: float | None = None,
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
        Count one share of the corpus alone, such as 2/7, without effects; `attnlab census merge`
        adds shares up and measures effects.
    shares
        Count the corpus in so many shares on --workers or --engine, and add them up.
    out
        A folder to create: a page, tables, and what --resume and merge need.
    resume
        Resume the census in --out.
    estimate
        Count the first thousand tokens alone, and say how long more would take here.
    price
        The price of an hour of such a machine, for --estimate.
    as_json
        Print the result as JSON.
    """
    from attnlab.edits.effects.sweep import SweepOptions
    from attnlab.experiments.census import census as count_all
    from attnlab.experiments.census import census_in_shares, estimate_census
    from attnlab.experiments.executors import ExecutorOptions
    from attnlab.look.census.result import CENSUS_FILE, census_folder
    from attnlab.look.corpus import Corpus

    share = (1, 1) if shard is None else _share_of(shard)
    in_shares = shares is not None or engine_options != HERE
    if in_shares and (out is None or shard is not None):
        raise WrongUsage("--shares, --workers and --engine need --out, without --shard.")
    check_corpus_command(
        "census", model, None if out is None else census_folder(out), resume=resume
    )
    texts = Corpus(corpus, **vars(reading))
    if estimate:
        rate = estimate_census(open_reader(model), texts, heads=head, effects=effects)
        return _show_estimate(rate, price)
    again = "the same command with --resume."
    with writing_to(out, CENSUS_FILE, again), progress(str(corpus), is_quiet=as_json) as observer:
        options: dict[str, Any] = {"heads": head, "effects": effects, "out": out}
        options["how"] = SweepOptions(progress=steps_of(observer, "effects"))
        if in_shares:
            workers = engine_options.workers
            where = ExecutorOptions(engine_options.engine, workers, engine_options.address)
            number = shares or 2 * (workers or 2)
            result = census_in_shares(model, texts, number, where, observer=observer, **options)
        else:
            show = corpus_lines(observer)
            result = count_all(open_reader(model), texts, shard=share, progress=show, **options)
    return _show(result, out, as_json=as_json)


@census.command
def merge(
    *shards: Path,
    out: Path,
    model: str | None = None,
    effects: WholeNumber = 32,
    as_json: AsJson = False,
) -> int:
    """Add up the censuses of shares of one corpus, and measure effects on its texts.

    Parameters
    ----------
    shards
        The folders of the shares, such as census-1 census-2.
    out
        A folder to create.
    model
        The model, to measure effects; without it there are none.
    effects
        How many texts, drawn by lot, to measure effects on, from 2 to 64.
    as_json
        Print the result as JSON.
    """
    from attnlab.edits.effects.sweep import SweepOptions
    from attnlab.experiments.census import add_effects
    from attnlab.look.census import merge_censuses

    result = merge_censuses(shards, out=out)
    if model is not None:
        with counting("effects", is_quiet=as_json) as show:
            how = SweepOptions(progress=show)
            add_effects(open_model(model), result, texts=effects, out=out, how=how)
    return _show(result, out, as_json=as_json)


@census.command
def headvis(folder: Path, /, *, model: str, out: Path) -> int:
    """Write a census as a folder of HeadVis, which its page and Neuronpedia's loaders read.

    Parameters
    ----------
    folder
        The folder of a census.
    model
        The model that it counted, which reads the examples once more.
    out
        A folder to create.
    """
    from attnlab.look.census import open_census, write_headvis

    result = open_census(folder)
    write_headvis(result, open_model(model), out)
    say(f"{len(result.heads)} heads   {out}")
    return 0


def _show_estimate(rate: "CensusRate", price: float | None) -> int:
    """Print how fast heads were counted, and what a million and a billion tokens would take."""
    say(f"{rate.tokens:,} tokens in {rate.seconds:.2g} s: {rate.per_second:,.0f} a second here")
    if rate.effects:
        say(f"effects, once: about {duration(rate.effects)}")
    for words, tokens in (("a million", 10**6), ("a billion", 10**9)):
        seconds = tokens / rate.per_second
        costs = "" if price is None else f", {price * seconds / 3600.0:,.2f} at {price:g} an hour"
        say(f"{words} tokens: {duration(seconds)} on one such machine{costs}")
    return 0


def _share_of(shard: str) -> tuple[int, int]:
    share, _, shards = shard.partition("/")
    if not (share.isdecimal() and shards.isdecimal() and 1 <= int(share) <= int(shards)):
        raise WrongUsage(
            f"--shard is a share such as 2/7, the second of seven, up to 7/7; got {shard!r}."
        )
    return int(share), int(shards)


def _show(result: "Census", out: Path | None, *, as_json: bool) -> int:
    from attnlab.draw.census import write_census_page

    if as_json:
        counted = {"counts": result.counts, "missing": result.missing, "caution": result.caution}
        print_json({**counted, "heads": result.table()})
    if not result.counts["texts read"]:
        say("this share of the corpus has no text")
        return 0
    if out is not None:
        write_census_page(result, out / "page.html")
        result.write_tables(out)
    if as_json:
        return 0
    say(", ".join(f"{name} {count:,}" for name, count in result.counts.items() if count))
    if result.missing:
        say(f"blocks of 256 rows that no share read: {', '.join(map(str, result.missing))}")
    say(result.kinds_text())
    card = card_of(result)
    show_table(card.columns, card.rows[:_MAX_HEADS])
    if len(card.rows) > _MAX_HEADS and out is None:
        more = len(card.rows) - _MAX_HEADS
        say(f"{more} more heads: --out writes a page of all, --json prints them")
    for line in card.lines:
        say(line)
    show_pages(out, "page.html")
    return 0
