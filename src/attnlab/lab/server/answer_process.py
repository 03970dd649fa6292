"""`python -m attnlab.lab.server.answer_process`: the process that answers what needs torch.

A question is a line of JSON; an answer is a line with a status and JSON, in which an array is
`{"float32": base64}` or `{"uint8": base64}`, little-endian.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.configs import Config
from attnlab.edits import Edit, edit, edits_from_json
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.experiments import registry
from attnlab.experiments.population.population import learnable
from attnlab.experiments.population.storage import is_member
from attnlab.experiments.report import open_run
from attnlab.experiments.sweeps.axes import shown
from attnlab.experiments.sweeps.line_process import serve_lines
from attnlab.experiments.sweeps.plan import Plan
from attnlab.lab.server import course_answers, model_answers, program_answers
from attnlab.lab.server.arrays import packed, packed_head
from attnlab.lab.server.domain import answer_all
from attnlab.lab.server.members import describe_member, describe_members, open_member
from attnlab.lab.server.sweep_cells import describe_sweep
from attnlab.look.heads import attentions, head_at, number_of_heads
from attnlab.look.questions import Continuation, Question, recorded
from attnlab.look.recording import record
from attnlab.memory import free_memory
from attnlab.models.config import TransformerConfig
from attnlab.models.parameters import count_from_config
from attnlab.seeds import stream_seed

__all__: list[str] = []

_MODELS = 4  # that stay open
_SITES = ["*weights", "*scores"]
_MOST_BYTES = 2**28  # of the attention in one answer


def _experiments() -> list[dict[str, Any]]:
    """Describe all experiments and their settings."""
    return [
        {
            "name": name,
            "summary": entry.summary,
            "settings": _settings(name),
            "quick": dict(_quick(name)),
        }
        for name, entry in registry.experiments().items()
    ]


def _quick(name: str) -> Mapping[str, Any]:
    return registry.find(name).config_class.QUICK


def _settings(name: str) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "type": each.kind.__name__,
            "default": each.default,
            "is_optional": each.is_optional,
            "low": each.low,
            "high": each.high,
            "choices": each.choices,
            "expected": each.expected,
            "comment": each.comment,
        }
        for each in registry.find(name).config_class.options()
    ]


def _check(
    experiment: str,
    settings: Mapping[str, Any],
    seed: int,
    quick: bool = False,
    seeds: int = 1,
    sweep: bool = False,
) -> dict[str, Any]:
    """Check a request for a job as the command line would; return its settings as texts, and the
    command."""
    texts = {name: shown(value) for name, value in settings.items()}
    stream_seed(seed)
    for config in _configs(experiment, texts, quick, range(seed, seed + seeds) if sweep else None):
        _check_memory(config)
    if seeds > 1:
        learnable(experiment)
    small = {name: shown(value) for name, value in _quick(experiment).items()} if quick else {}
    words = ["attnlab", "sweep" if sweep else "run", experiment, *["--quick"] * quick]
    words += ["--seed", str(seed), *["--seeds", str(seeds)] * (seeds > 1 or sweep)]
    assigned = [f"{name}={text}" for name, text in texts.items()]
    words += ["--set", *assigned] if assigned else []
    return {"settings": {**small, **texts}, "command": shlex.join(words)}


def _configs(
    experiment: str, texts: Mapping[str, str], quick: bool, seeds: Sequence[int] | None
) -> list[Config]:
    """Return the config of a run, or with seeds those of all cells of a sweep."""
    if seeds is None:
        return [registry.config(experiment, texts, quick=quick)]
    grid = Plan.read(experiment, texts, {}, seeds, quick=quick, layout="auto").grid()
    return [cell.config for cell in grid.cells if cell.config is not None]


def _check_memory(config: Config) -> None:
    """Refuse a training whose weights or attention take most of the free memory."""
    make: Callable[[], Any] | None = getattr(config, "model_config", None)
    model = make() if make is not None else None
    free = free_memory()
    if not isinstance(model, TransformerConfig) or free is None:
        return
    weights = 16 * sum(count_from_config(model).values())  # with gradients and two moments
    attention = 12 * model.num_layers * model.num_heads * model.max_length**2
    needed = weights + attention * int(getattr(config, "batch_size", 1))
    if needed > free / 2:
        raise TooLarge(
            f"this training takes about {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} are free: "
            "choose fewer layers or heads, a smaller width or a smaller batch."
        )


def _ask(folder: str, text: str, edits: list[Any]) -> dict[str, Any]:
    """Answer an input with a run's model under edits: every step, and every head in it."""
    question = _newest(folder).ask(text)
    changes = _read_edits(edits)
    changed = edit(question.model, *changes, vocabulary=question.vocabulary, certify=False)
    with changed if changes else nullcontext(), torch.no_grad():
        if isinstance(question, Continuation):
            steps = _continued(question)
        else:
            steps = _traced(question)
    margins = [step.pop("margin") for step in steps if "margin" in step]
    space = "" if margins else " "
    given = [step["answer"] for step in steps]
    right = [step["expected"] for step in steps]
    is_known = None not in right
    return {
        "input": text,
        "answer": space.join(given),
        "expected": space.join(right) if is_known else None,
        "isRight": given == right if is_known else None,
        "margin": min(margins, default=None),
        "steps": steps,
    }


def _domain(folder: str, edits: list[Any]) -> dict[str, Any]:
    """Answer every input with a run's model under edits."""
    opened = _newest(folder)
    return answer_all(opened.model, opened.config, _read_edits(edits))


def _read_edits(forms: list[Any]) -> list[Edit]:
    for each in forms:
        if isinstance(each, dict) and isinstance(each.get("recording"), str):
            raise WrongUsage("an edit from the page cannot read a recording: give its numbers.")
    return edits_from_json(forms)


class _Opened(NamedTuple):
    """A run whose model is open."""

    model: nn.Module
    config: Config
    ask: Callable[[str], Question]


def _newest(folder: str) -> _Opened:
    home = Path(folder).parent if is_member(folder) else folder
    return _opened(folder, os.stat(f"{home}/claims.json").st_mtime_ns)


@lru_cache(maxsize=_MODELS)
def _opened(folder: str, written: int) -> _Opened:
    """Open a run, or a member of a population, for questions; its model stays open until it is
    written anew."""
    if is_member(folder):
        report, model, config = open_member(Path(folder))
    else:
        report = open_run(Path(folder))
        model, config = report.model.eval(), registry.config_of(report)
    experiment = registry.askable(report)
    return _Opened(
        model, config, lambda text: experiment.ask(model, config, text, folder=report.folder)
    )


def _continued(question: Continuation) -> list[dict[str, Any]]:
    """Continue a prompt, with one pass for each step."""
    names, tokens, steps = question.vocabulary, question.prompt, []
    _check_size(question.model, (tokens.shape[1] + question.num_tokens) ** 2 * question.num_tokens)
    for place in range(question.num_tokens):
        with record(question.model, _SITES) as recording:
            logits = question.model(tokens)[0, -1]
        logits[list(question.forbidden)] = -torch.inf
        choice = int(logits.argmax())
        right = names.index(question.expected[place]) if question.expected else choice
        lead = logits[right] - logits.index_fill(0, torch.tensor([right]), -torch.inf).amax()
        steps.append(
            {
                "tokens": [names[token] for token in tokens[0]],
                "answer": names[choice],
                "expected": names[right] if question.expected else None,
                "probabilities": packed(logits.softmax(-1)),
                "heads": _heads(recording),
                "margin": float(lead),
            }
        )
        tokens = torch.cat((tokens, torch.tensor([[choice]])), 1)
    return steps


def _traced(question: Question) -> list[dict[str, Any]]:
    """Answer a question of another kind; all its steps share the heads of one pass."""
    found = question.trace()
    heads = _heads(recorded(question, _SITES))
    return [
        {
            "tokens": list(found.tokens),
            "answer": step.choice,
            "expected": step.expected,
            "candidates": list(step.candidates),
            "probabilities": packed(torch.tensor(step.probabilities)),
            "heads": heads,
        }
        for step in found.steps
    ]


def _heads(recording: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Describe every head of a recorded pass."""
    found = []
    for site in recording:
        if not site.endswith("weights"):
            continue
        weights = recording[site][0]
        scores = recording[f"{site.removesuffix('weights')}scores"][0]
        for head in range(len(weights)):
            found.append(packed_head(head_at(site, head), weights[head], scores[head]))
    return found


def _check_size(model: nn.Module, cells: int) -> None:
    heads = sum(number_of_heads(model, part) for part in attentions(model))
    if 9 * heads * cells > _MOST_BYTES:
        raise TooLarge(
            f"the attention of this answer takes {9 * heads * cells / 1e6:,.0f} MB, and "
            f"{_MOST_BYTES / 1e6:,.0f} are allowed: ask a shorter input."
        )


class TooLarge(CouldNotRun):
    """The request would take too much memory."""


_WORK: dict[str, Callable[..., Any]] = {
    "experiments": _experiments,
    "check": _check,
    "ask": _ask,
    "domain": _domain,
    "members": describe_members,
    "member": describe_member,
    "sweep": describe_sweep,
    **model_answers.WORK,
    **program_answers.WORK,
    **course_answers.WORK,
}


def _answer(line: str) -> str:
    """Answer one question."""
    asked = json.loads(line)
    status = 200
    try:
        value = _WORK[asked.pop("what")](**asked)
    except TooLarge as error:
        status, value = 413, {"error": str(error)}
    except AttnlabError as error:
        status, value = 400 if error.exit_status == 2 else 409, {"error": str(error)}
    except OSError as error:
        status, value = 409, {"error": f"could not read {error.filename}: {error.strerror}."}
    return f"{status} {json.dumps(value)}"


def _serve(take: Callable[[], str], give: Callable[[str], None]) -> None:
    while True:
        give(_answer(take()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["HF_HUB_OFFLINE"] = "1"  # models of the hub are read from its cache alone
    serve_lines(_serve)
