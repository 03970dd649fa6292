"""attnlab look: every head of a model while it reads one input."""

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from attnlab.cli import terminal
from attnlab.cli.answers import show_weights
from attnlab.cli.asking import AS_IT_IS, ForPretrained, ask, chosen_heads
from attnlab.cli.documents import NO_DOCUMENT, OfDocument, look_at_document
from attnlab.cli.keeping import check_new
from attnlab.cli.overview import habits, mostly, show_overview
from attnlab.cli.running import print_json
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from torch import Tensor

    from attnlab.look import Recording

__all__ = ["look"]

_FEW = 16  # heads that are shown one by one
_MOST_WEIGHTS = 1_000_000  # that --json writes out as rows


def look(
    run: str,
    /,
    *words: str,
    site: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    head: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    how: ForPretrained = AS_IT_IS,
    of: OfDocument = NO_DOCUMENT,
    out: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Look at every head of a model while it reads one input: how spread, how far, and where it looks most.

    Of more than 16 heads a table says what each mostly does; --head, --site and --out show more.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/; or a pretrained model: a folder, a GGUF file or a hub id.
    words
        The input, such as cab, or a text in quotes.
    site
        What to look at: site names, with * for anything, such as layers.*.attention.weights (without it every head's
        weights) or *residual_after.
    head
        Heads to look at closely: LAYER.HEAD, such as 3.5, of an encoder–decoder 'encoder 3.5', 'decoder 3.5' or
        'cross 3.5'; or PART.HEAD with a part's path.
    out
        A folder to make: the recording, figures as PNG, SVG and PDF, and an interactive page that opens from disk.
    as_json
        Print it as JSON.
    """
    from attnlab.look.heads import read_head
    from attnlab.look.questions import Verdict, recorded

    if site is not None and head is not None:
        raise WrongUsage("--head and --site both say what to look at; give one of them.")
    if of.is_asked(run, words, [*how.said(), *(["--site"] if site else [])]):
        return look_at_document(run, of, head=head, out=out, as_json=as_json)
    if site == []:
        raise WrongUsage(
            "--site needs a site, such as '*residual_after'; without --site every head's weights are shown."
        )
    for text in head or ():
        read_head(text)
    if out is not None:
        check_new(out)
    question = ask(run, words, how)
    chosen = None if head is None else chosen_heads(question.model, head)
    recording = recorded(question, list(chosen or site or ["*weights"]))
    if out is not None:
        from attnlab.cli.keeping import keep_recording

        keep_recording(recording, out, title=f"{Path(run).name}: {' '.join(words)}")
    if not recording:
        raise WrongUsage(f"nothing came by {' or '.join(site or ())}; a mask is there only where something is hidden.")
    weights = [name for name in recording if name.endswith("weights")]
    is_brief = site is None and head is None and sum(recording.shape(name)[1] for name in weights) > _FEW
    written = sum(
        len((chosen or {}).get(name) or range(recording.shape(name)[1])) * prod(recording.shape(name)[2:])
        for name in weights
    )
    has_rows = written <= _MOST_WEIGHTS if as_json else not is_brief
    in_order = sorted(recording, key=lambda name: "cross_attention" not in name)  # where an answer is fetched from
    facts = {name: _facts(recording, name, (chosen or {}).get(name), has_rows=has_rows) for name in in_order}
    if as_json:
        print_json(facts)
    elif is_brief:
        show_overview(facts)
        terminal.say(f"one of them: attnlab look {run} … --head {_telling_head(facts)}", is_quiet=True)
    else:
        for name in in_order:
            _show(name, facts[name])
    if isinstance(question, Verdict) and question.note and not as_json:
        terminal.say(question.note, is_quiet=True)
    if out is not None and not as_json:
        terminal.say(f"page     {out / 'view.html'}")
    return 0


def _facts(recording: "Recording", name: str, heads: "list[int] | None", *, has_rows: bool) -> dict[str, Any]:
    """What is said of a site: of weights, each head's facts and rows; of anything else, its shape and size."""
    import torch

    value = recording[name]
    if name.endswith("mask"):  # which all inputs may share
        is_open = value if value.dtype == torch.bool else value > torch.finfo(value.dtype).min  # a bias may hide keys
        return {"shape": list(value.shape), "open": int(is_open.sum())}
    value = value[0]
    if not name.endswith("weights"):
        finite = value.double()[value.double().isfinite()]
        size = float(torch.linalg.vector_norm(finite)) / max(1, finite.numel()) ** 0.5
        return {"shape": list(value.shape), "root_mean_square": size}
    sides = recording.tokens(name)
    chosen = range(len(value)) if heads is None else heads
    found = [{"head": head, **_head_facts(value[head], recording, name, head, has_rows=has_rows)} for head in chosen]
    return {"query_tokens": sides.query, "key_tokens": sides.key, "heads": found}


def _head_facts(weights: "Tensor", recording: "Recording", name: str, head: int, *, has_rows: bool) -> dict[str, Any]:
    """One head's: weights (query, key); what could not be looked at is None."""
    from attnlab.look.statistics import entropy, largest_weight

    sides = recording.tokens(name)
    places = habits(weights, is_own=sides.query == sides.key)
    facts: dict[str, Any] = {
        "entropy": float(entropy(weights).mean()),
        "largest_weight": float(largest_weight(weights).mean()),
        "looks_most_at": [sides.key[int(key)] for key in weights.argmax(-1)],
        "places": places,
        "mostly": mostly(places),
    }
    if not has_rows:
        return facts
    blocked = recording.blocked(name, head=head)
    hidden = weights.new_zeros(weights.shape).bool() if blocked is None else blocked
    rows = zip(weights.tolist(), hidden.tolist(), strict=True)
    facts["rows"] = [[None if not_seen else weight for weight, not_seen in zip(*each, strict=True)] for each in rows]
    return facts


def _telling_head(facts: dict[str, Any]) -> str:
    """Name the head that looks most at one place beside the first, as --head takes it."""
    from attnlab.look.heads import head_at

    def rank(head: dict[str, Any]) -> float:
        return max((share for place, share in head["places"].items() if place != "first"), default=0.0)

    _, site, head = max((rank(head), site, head["head"]) for site, each in facts.items() for head in each["heads"])
    name = head_at(site, head)
    return f"'{name}'" if " " in name else name


def _show(name: str, facts: dict[str, Any]) -> None:
    if "heads" in facts:
        show_weights(name, facts)
    elif "open" in facts:
        terminal.say(f"{name}  {tuple(facts['shape'])}, {facts['open']:,} of {prod(facts['shape']):,} are open")
    else:
        terminal.say(f"{name}  {tuple(facts['shape'])}, root mean square {facts['root_mean_square']:.4g}")
