"""attnlab look: every head of a model while it reads one input."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from attnlab.cli.output_folder import check_new_folder, save_recording
from attnlab.cli.prompts import ask, head_numbers
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from torch import Tensor

    from attnlab.look import Recording

_MAX_HEADS = 16  # shown one by one; more are shown in one table
_LEAST = 0.3  # share of a head's weight on one position that the table names
_MAX_WEIGHTS = 1_000_000  # that --json writes out as rows


def look(
    run: str,
    /,
    *words: str,
    site: Strings = None,
    head: Strings = None,
    how: PretrainedOptions = NO_OPTIONS,
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
    from attnlab.look.questions import Verdict, recorded

    _check_options(site, head)
    others = [*how.given(), "--site"] if site else how.given()
    if is_long_text(long_text, run, words, others):
        return summarize_long_text(run, long_text, head=head, out=out, as_json=as_json)
    if out is not None:
        check_new_folder(out)
    question = ask(run, words, how)
    chosen = {} if head is None else head_numbers(question.model, head)
    recording = recorded(question, list(chosen or site or ["*weights"]))
    if out is not None:
        save_recording(recording, out, title=f"{Path(run).name}: {' '.join(words)}")
    if not recording:
        raise WrongUsage(
            f"nothing was recorded at {' or '.join(site or ())}; a mask exists only where "
            "something is masked."
        )
    num_heads, num_weights = _sizes(recording, chosen)
    is_brief = site is None and head is None and num_heads > _MAX_HEADS
    has_rows = num_weights <= _MAX_WEIGHTS if as_json else not is_brief
    # Cross-attention first: an answer is fetched from there.
    sites = sorted(recording, key=lambda name: "cross_attention" not in name)
    facts = {name: _facts(recording, name, chosen.get(name), has_rows=has_rows) for name in sites}
    if as_json:
        terminal.print_json(facts)
        return 0
    _show(run, facts, is_brief=is_brief)
    if isinstance(question, Verdict) and question.note:
        terminal.say(question.note, is_quiet=True)
    if out is not None:
        terminal.say(f"page     {out / 'view.html'}")
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


def _sizes(recording: "Recording", chosen: dict[str, list[int]]) -> tuple[int, int]:
    """Count the heads that were recorded, and the weights of those that were chosen."""
    num_heads = num_weights = 0
    for name in recording:
        if name.endswith("weights"):
            _, heads, queries, keys = recording.shape(name)
            num_heads += heads
            num_weights += len(chosen.get(name, range(heads))) * queries * keys
    return num_heads, num_weights


def _facts(
    recording: "Recording", name: str, heads: list[int] | None, *, has_rows: bool
) -> dict[str, Any]:
    """Describe a site: weights by the facts of each head, any other value by shape and size."""
    import torch

    value = recording[name]
    if name.endswith("mask"):  # boolean, or a bias that is added to the scores
        is_open = value if value.dtype == torch.bool else value > torch.finfo(value.dtype).min
        return {"shape": list(value.shape), "open": int(is_open.sum())}
    value = value[0]
    if not name.endswith("weights"):
        finite = value.double()[value.double().isfinite()]
        size = float(torch.linalg.vector_norm(finite)) / max(1, finite.numel()) ** 0.5
        return {"shape": list(value.shape), "root_mean_square": size}
    sides = recording.tokens(name)
    is_own = sides.query == sides.key
    found = []
    for head in range(len(value)) if heads is None else heads:
        facts = _head_facts(value[head], sides.key, is_own=is_own)
        if has_rows:
            facts["rows"] = _rows(value[head], recording.blocked(name, head=head))
        found.append({"head": head, **facts})
    return {"query_tokens": sides.query, "key_tokens": sides.key, "heads": found}


def _head_facts(weights: "Tensor", keys: Sequence[str], *, is_own: bool) -> dict[str, Any]:
    """Return the facts of one head; weights are (query, key)."""
    from attnlab.look.statistics import entropy, largest_weight

    places = habits(weights, is_own=is_own)
    return {
        "entropy": float(entropy(weights).mean()),
        "largest_weight": float(largest_weight(weights).mean()),
        "looks_most_at": [keys[int(key)] for key in weights.argmax(-1)],
        "places": places,
        "mostly": mostly(places),
    }


def _rows(weights: "Tensor", blocked: "Tensor | None") -> list[list[float | None]]:
    """Return the weights of each query, None where they are masked."""
    rows: list[list[float | None]] = weights.tolist()
    if blocked is not None:
        for query, key in blocked.nonzero().tolist():
            rows[query][key] = None
    return rows


def habits(weights: "Tensor", *, is_own: bool) -> dict[str, float]:
    """Return a head's mean weight on the first and last key and, in self-attention, near the query.

    weights (query, key). Only queries for which these positions differ are counted, all if there
    are none.
    """
    queries, keys = weights.shape
    if not is_own or queries != keys:
        return {"first": float(weights[:, 0].mean()), "last": float(weights[:, -1].mean())}
    inner = weights[2:] if queries > 2 else weights
    first = queries - inner.shape[0]
    found = {"first": float(inner[:, 0].mean()), "self": float(inner.diagonal(first).mean())}
    previous = weights.diagonal(-1)[max(first - 1, 0) :]
    found["previous"] = float(previous.mean()) if queries > 1 else 0.0
    if queries > 3 and bool((weights.triu(1) > 0).any()):  # no causal mask
        found["last"] = float(weights[2:-2, -1].mean()) if queries > 4 else 0.0
        found["next"] = float(weights.diagonal(1)[2:-1].mean()) if queries > 4 else 0.0
    return found


def mostly(places: dict[str, float]) -> str | None:
    """Name the position with most of a head's weight, if that is at least 30 %."""
    place = max(places, key=lambda each: places[each])
    return place if places[place] >= _LEAST else None


def _show(run: str, facts: dict[str, dict[str, Any]], *, is_brief: bool) -> None:
    from attnlab.look.heads import head_at

    if is_brief:
        show_overview(facts)
        example = head_at(next(iter(facts)), 0)
        terminal.say(f"one of them: attnlab look {run} … --head '{example}'", is_quiet=True)
        return
    for name, each in facts.items():
        if "heads" in each:
            show_weights(name, each)
            continue
        shape = tuple(each["shape"])
        if "open" in each:
            words = f"{each['open']:,} of {prod(shape):,} not masked"
        else:
            words = f"root mean square {each['root_mean_square']:.4g}"
        terminal.say(f"{name}  {shape}, {words}")
