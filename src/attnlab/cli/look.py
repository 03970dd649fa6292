"""attnlab look: every head of a run's model while it reads one input."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from attnlab.cli import terminal
from attnlab.cli.answers import show_weights
from attnlab.cli.finding import find_run
from attnlab.cli.running import print_json
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from torch import Tensor

    from attnlab.look import Recording
    from attnlab.look.questions import Question

__all__ = ["ask", "look"]


def look(
    run: str,
    /,
    *words: str,
    site: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    out: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Look at every head of a run's model while it reads one input: how spread, how far, and where it looks most.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/.
    words
        The input, such as cab.
    site
        What to look at: site names, with * for anything, such as layers.*.attention.weights (without it every head's
        weights) or *residual_after.
    out
        A folder to make: the recording, figures as PNG, SVG and PDF, and an interactive page that opens from disk.
    as_json
        Print it as JSON.
    """
    from attnlab.look.questions import recorded

    question = ask(run, words)
    recording = recorded(question, site or "*weights")
    if out is not None:
        from attnlab.cli.keeping import keep_recording

        keep_recording(recording, out, title=f"{run}: {' '.join(words)}")
    if as_json:
        print_json({name: _facts(recording, name) for name in recording})
    else:
        for name in recording:
            _show(recording, name)
    if out is not None and not as_json:
        terminal.say(f"page     {out / 'view.html'}")
    return 0


def ask(run: str, words: Sequence[str]) -> "Question":
    """Put words to a run's model."""
    from attnlab.experiments import open_run, registry

    report = open_run(find_run(run))
    expected = registry.askable(report).prompt_words(registry.config_of(report))
    if not words:
        raise WrongUsage(f"after the run, type what its model shall read: {expected}.")
    return registry.ask_run(report, " ".join(words))


def _facts(recording: "Recording", name: str) -> dict[str, Any]:
    """What is said of a site: of weights, each head's facts and rows; of anything else, its shape and size."""
    import torch

    value = recording[name]
    if not name.endswith("mask"):  # which all inputs may share
        value = value[0]
    if not name.endswith("weights"):
        finite = value.double()[value.double().isfinite()]
        size = float(torch.linalg.vector_norm(finite)) / max(1, finite.numel()) ** 0.5
        return {"shape": list(value.shape), "root_mean_square": size}
    sides = recording.tokens(name)
    heads = [{"head": head, **_head_facts(weights, recording, name, head)} for head, weights in enumerate(value)]
    return {"query_tokens": sides.query, "key_tokens": sides.key, "heads": heads}


def _head_facts(weights: "Tensor", recording: "Recording", name: str, head: int) -> dict[str, Any]:
    """One head's: weights (query, key); what could not be looked at is None."""
    from attnlab.look.statistics import entropy, largest_weight

    blocked = recording.blocked(name, head=head)
    keys = recording.tokens(name).key
    rows = [
        [None if is_blocked else weight for weight, is_blocked in zip(row, hidden, strict=True)]
        for row, hidden in zip(
            weights.tolist(),
            weights.new_zeros(weights.shape).bool().tolist() if blocked is None else blocked.tolist(),
            strict=True,
        )
    ]
    return {
        "entropy": float(entropy(weights).mean()),
        "largest_weight": float(largest_weight(weights).mean()),
        "looks_most_at": [keys[int(key)] for key in weights.argmax(-1)],
        "rows": rows,
    }


def _show(recording: "Recording", name: str) -> None:
    facts = _facts(recording, name)
    if "heads" in facts:
        show_weights(name, facts)
    else:
        terminal.say(f"{name}  {tuple(facts['shape'])}, root mean square {facts['root_mean_square']:.4g}")
