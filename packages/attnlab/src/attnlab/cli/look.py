"""attnlab look: every head of a model while it reads one input."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli import terminal
from attnlab.cli.answers import show_overview, show_weights
from attnlab.cli.long_text import is_long_text, summarize_long_text
from attnlab.cli.options import (
    NO_LONG_TEXT,
    NO_OPTIONS,
    AsJson,
    LongTextOptions,
    PretrainedOptions,
    Strings,
)
from attnlab.cli.output_folder import check_new_folder, save_recording, show_pages
from attnlab.cli.progress import counting
from attnlab.cli.prompts import ask, head_numbers, page_title
from attnlab.cli.site_facts import ValueFacts, WeightFacts, site_facts
from attnlab.errors import WrongUsage, typed

if TYPE_CHECKING:
    from attnlab.look import Recording

_MAX_HEADS = 16  # shown one by one; more are shown in one table
_MAX_WEIGHTS = 1_000_000  # that --json writes out as rows
_LONG = 1_000  # words whose reading is worth a word on the way


def look(
    run: str,
    /,
    *words: str,
    site: Strings = None,
    head: Strings = None,
    model_options: PretrainedOptions = NO_OPTIONS,
    long_text: LongTextOptions = NO_LONG_TEXT,
    out: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Show where every head of a model attends while it reads one input, or a long text.

    More than 16 heads are summarized in a table; --head, --site and --out show more.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/; or a pretrained model: a folder, a GGUF file or a
        hub id.
    words
        The input, such as cab, or a text in quotes.
    site
        Names of the sites to show, with * for anything: layers.*.attention.weights or
        *residual_after; by default the weights of every head.
    head
        Heads to show in full: LAYER.HEAD, such as 3.5; in an encoder–decoder 'encoder 3.5',
        'decoder 3.5' or 'cross 3.5'; or PART.HEAD with the path of a module.
    out
        A folder to create: the recording, figures as PNG, SVG and PDF, and an interactive page that
        opens from disk.
    as_json
        Print the result as JSON.
    """
    from attnlab.look.questions import recorded

    _check_options(site, head)
    others = [*model_options.typed_names(), *["--site"] * bool(site), *["--head"] * bool(head)]
    if is_long_text(long_text, run, words, others):
        return summarize_long_text(run, long_text, out=out, as_json=as_json)
    check_new_folder(out)
    question = ask(run, words, model_options)  # which refuses a text that is too long
    length = _announced(words, run)
    chosen = head_numbers(question.model, head)
    sites = list(chosen) or site or ["*weights"]
    with counting(f"{length:,} words", is_quiet=length < _LONG) as tell:
        recording = recorded(question, sites)
        num_heads, num_weights = _sizes(recording, chosen)
        is_overview = num_heads > _MAX_HEADS and not (site or head)
        has_rows = num_weights <= _MAX_WEIGHTS if as_json else not is_overview
        facts = site_facts(recording, chosen, has_rows=has_rows, progress=tell)
    if out is not None:
        opens = next(((name, heads[0]) for name, heads in chosen.items()), None)
        title = page_title(run, question.model, words)
        save_recording(recording, out, title=title, opens=opens or "telling")
    if not recording:
        raise WrongUsage(
            f"nothing was recorded at {' or '.join(sites)}; a mask exists only where something is "
            "masked."
        )
    if as_json:
        terminal.print_json({name: value.to_mapping() for name, value in facts.items()})
        return 0
    _show(run, " ".join(words), facts, getattr(question, "note", ""), is_overview=is_overview)
    show_pages(out, "view.html")
    return 0


def _check_options(site: list[str] | None, head: list[str] | None) -> None:
    from attnlab.look.heads import read_head

    if site is not None and head is not None:
        raise WrongUsage("--head and --site both choose what is shown; give one of them.")
    if site == []:
        raise WrongUsage(
            "--site needs a site, such as '*residual_after'; without --site every head's "
            "weights are shown."
        )
    for text in head or ():
        read_head(text)


def _announced(words: Sequence[str], run: str) -> int:
    """Return the number of words of an input; say of a long one how it is summarized sooner."""
    length = len(" ".join(words).split())
    if length >= _LONG:
        terminal.note(
            f"{length:,} words: every weight of every head is computed; summaries take a fraction "
            f"of that: attnlab look {typed(run)} --document FILE --out DIR"
        )
    return length


def _sizes(recording: "Recording", chosen: Mapping[str, Sequence[int]]) -> tuple[int, int]:
    """Count the heads that were recorded, and the weights of those that were chosen."""
    num_heads = num_weights = 0
    for name in recording:
        if name.endswith("weights"):
            _, heads, queries, keys = recording.shape(name)
            num_heads += heads
            num_weights += len(chosen.get(name, range(heads))) * queries * keys
    return num_heads, num_weights


def _show(
    run: str,
    text: str,
    facts: Mapping[str, WeightFacts | ValueFacts],
    note: str,
    *,
    is_overview: bool,
) -> None:
    if is_overview:
        show_overview(run, text, facts)
    for name, site in facts.items():
        if isinstance(site, ValueFacts):
            terminal.say(f"{name}  {tuple(site.shape)}, {site.words}")
        elif not is_overview:
            show_weights(name, site)
    if note:
        terminal.say(note, is_quiet=True)
