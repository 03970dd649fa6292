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
from attnlab.cli.output_folder import show_page
from attnlab.cli.progress import corpus_lines, counting, progress, steps_of
from attnlab.cli.prompts import is_pretrained, open_model, require_tokenizer
from attnlab.cli.terminal import print_json, say, show_table
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
    from attnlab.experiments.sweeps.executors import Where
    from attnlab.look.corpus import Corpus

    if not is_pretrained(model):
        raise WrongUsage(
            f"census is for pretrained models; {model} is a run: in Python, Corpus takes encode=."
        )
    share = (1, 1) if shard is None else _share_of(shard)
    _check_folder(out, resume)
    texts = Corpus(corpus, **vars(reading))
    if estimate:
        opened = open_model(model)
        require_tokenizer(opened)
        return _show_estimate(estimate_census(opened, texts, heads=head, effects=effects), price)
    again = "the same command with --resume."
    with writing_to(out, "census.json", again), progress(str(corpus), is_quiet=as_json) as observer:
        how = SweepOptions(progress=steps_of(observer, "effects"))
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
                progress=corpus_lines(observer),
                how=how,
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
                how=how,
            )
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


def _show_estimate(rate: "CensusRate", price: float | None) -> int:
    """Print how fast heads were counted, and what a million and a billion tokens would take."""
    say(f"{rate.tokens:,} tokens in {rate.seconds:.2g} s: {rate.per_second:,.0f} a second here")
    if rate.effects:
        say(f"effects, once: about {_duration(rate.effects)}")
    for words, tokens in (("a million", 10**6), ("a billion", 10**9)):
        seconds = tokens / rate.per_second
        costs = "" if price is None else f", {price * seconds / 3600.0:,.2f} at {price:g} an hour"
        say(f"{words} tokens: {_duration(seconds)} on one such machine{costs}")
    return 0


def _duration(seconds: float) -> str:
    if seconds < 60.0:
        return f"{seconds:.0f} s"
    if seconds < 3600.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:,.1f} hours"


def _share_of(shard: str) -> tuple[int, int]:
    share, _, shards = shard.partition("/")
    if not (share.isdecimal() and shards.isdecimal() and 1 <= int(share) <= int(shards)):
        raise WrongUsage(
            f"--shard is a share such as 2/7, the second of seven, up to 7/7; got {shard!r}."
        )
    return int(share), int(shards)


def _check_folder(out: Path | None, resume: bool) -> None:
    from attnlab.look.census.result import CensusFolder

    if resume and out is None:
        raise WrongUsage("--resume needs --out with the folder of the census.")
    if out is not None and CensusFolder(out).is_there and not resume:
        raise WrongUsage(
            f"{out} holds a census already: resume it with --resume, or choose another folder."
        )


def _show(result: "Census", out: Path | None, *, as_json: bool) -> int:
    from attnlab.draw.census import METRICS, write_census_page

    rows = result.table()
    if as_json:
        counted = {"counts": result.counts, "missing": result.missing, "caution": result.caution}
        print_json({**counted, "heads": rows})
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
    _show_heads(result, rows)
    if len(rows) > _MAX_HEADS and out is None:
        say(f"{len(rows) - _MAX_HEADS} more heads: --out writes a page of all, --json prints them")
    if result.effects:
        metric = METRICS[result.effects[0]["metric"]]
        say(f"largest effects first: {metric} where a head's output is zero")
        if result.effects[0]["metric"] == "loss":
            say("* significant, with the share of false findings held at 5 %")
    if result.caution:
        say(f"caution: {result.caution}")
    show_page(out, "page.html")
    return 0


def _show_heads(result: "Census", rows: list[dict[str, Any]]) -> None:
    """Print the heads with the largest effects, or that do one thing most."""
    from attnlab.look.census.result import KINDS

    columns = ["head", "kind", "previous", "first"]
    if result.effects:
        rows.sort(key=lambda row: -abs(row["zeroed"]))
        columns += ["on repeats", "effect [95 %]"]
    else:
        rows.sort(key=lambda row: -max(row[name] or 0.0 for name in KINDS if name != "first"))
        columns += ["duplicate", "induction"]
    shown = []
    for row in rows[:_MAX_HEADS]:
        cells = [row["head"], row["kind"], _number(row["previous"]), _number(row["first"])]
        if result.effects:
            ends = f"[{row['zeroed_low']:+.3f}, {row['zeroed_high']:+.3f}]"
            mark = "*" * bool(row["zeroed_matters"])
            cells += [_number(row["induction_on_repeats"]), f"{row['zeroed']:+.3f}{mark} {ends}"]
        else:
            cells += [_number(row["duplicate"]), _number(row["induction"])]
        shown.append(cells)
    show_table(columns, shown)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
