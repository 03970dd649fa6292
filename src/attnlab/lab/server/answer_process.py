"""`python -m attnlab.lab.server.answer_process`: the process that answers what needs torch.

A question is a line of JSON; an answer is a line with a status and JSON, in which an array is
`{"float32": base64}` or `{"uint8": base64}`, little-endian.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NotRequired, TypedDict

import torch
from torch import nn

from attnlab.configs import Config, Option
from attnlab.edits import Edit, edit, edits_from_json
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.experiments import registry
from attnlab.experiments.population.population import learnable
from attnlab.experiments.population.storage import is_member
from attnlab.experiments.report import open_run
from attnlab.experiments.sweeps.axes import all_shown
from attnlab.experiments.sweeps.line_process import serve_lines
from attnlab.experiments.sweeps.plan import Plan
from attnlab.lab.server import course_answers, model_answers, program_answers
from attnlab.lab.server.arrays import Packed, PackedHead, packed, packed_heads
from attnlab.lab.server.domain import answer_all
from attnlab.lab.server.members import describe_member, describe_members, open_member
from attnlab.lab.server.sweep_cells import describe_sweep
from attnlab.look.heads import attentions, number_of_heads
from attnlab.look.questions import Continuation, Question, recorded
from attnlab.look.recording import record
from attnlab.memory import free_memory
from attnlab.models.config import TransformerConfig
from attnlab.models.parameters import count_from_config
from attnlab.seeds import stream_seed

__all__: list[str] = []

_MODELS = 4  # that stay open
_SITES = ["*weights", "*scores"]
_SHOWN = ("default", "is_optional", "low", "high", "choices", "expected", "comment")
_MOST_BYTES = 2**28  # of the attention in one answer


class _Step(TypedDict):
    """One step of an answer, as JSON."""

    tokens: list[str]
    answer: str
    expected: str | None
    candidates: NotRequired[list[str]]
    probabilities: Packed
    heads: list[PackedHead]


def _experiments() -> list[dict[str, object]]:
    """Describe all experiments and their settings."""
    found: list[dict[str, object]] = []
    for name, entry in registry.experiments().items():
        config_class = registry.find(name).config_class
        facts: dict[str, object] = {
            "name": name,
            "summary": entry.summary,
            "settings": list(map(_described, config_class.options())),
            "quick": dict(config_class.QUICK),
        }
        found.append(facts)
    return found


def _described(option: Option) -> dict[str, object]:
    told = {"name": option.name, "type": option.kind.__name__}
    return told | {name: getattr(option, name) for name in _SHOWN}


def _check(
    experiment: str,
    settings: Mapping[str, object],
    seed: int,
    quick: bool = False,
    seeds: int = 1,
    sweep: bool = False,
) -> dict[str, object]:
    """Check a request for a job as the command line would; return its settings as texts, and the
    command."""
    texts = all_shown(settings)
    stream_seed(seed)
    if sweep:
        own = range(seed, seed + seeds)
        grid = Plan.read(experiment, texts, {}, own, quick=quick, layout="auto").grid()
        for cell in grid.cells:
            _check_memory(cell.config)
    else:
        _check_memory(registry.config(experiment, texts, quick=quick))
    if seeds > 1:
        learnable(experiment)
    words = ["attnlab", "sweep" if sweep else "run", experiment]
    all_texts = texts
    if quick:
        words.append("--quick")
        small = registry.find(experiment).config_class.QUICK
        all_texts = all_shown(small) | texts
    words += ["--seed", str(seed)]
    if seeds > 1 or sweep:
        words += ["--seeds", str(seeds)]
    if texts:
        words += ["--set", *(f"{name}={text}" for name, text in texts.items())]
    return {"settings": all_texts, "command": shlex.join(words)}


def _check_memory(config: Config | None) -> None:
    """Refuse a training whose weights or attention take most of the free memory."""
    make: Callable[[], object] = getattr(config, "model_config", lambda: None)
    model, free = make(), free_memory()
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


def _ask(folder: str, text: str, edits: list[object]) -> dict[str, object]:
    """Answer an input with a run's model under edits: every step, and every head in it."""
    question = _newest(folder).ask(text)
    changes = _read_edits(edits)
    changed = edit(question.model, *changes, vocabulary=question.vocabulary, certify=False)
    space, margins = " ", list[float]()
    with changed if changes else nullcontext(), torch.no_grad():
        if isinstance(question, Continuation):
            space = ""
            steps, margins = _continued(question)
        else:
            steps = _traced(question)
    given = [step["answer"] for step in steps]
    right = [step["expected"] for step in steps if step["expected"] is not None]
    expected, is_right = None, None
    if len(right) == len(steps):
        expected, is_right = space.join(right), given == right
    return {
        "input": text,
        "answer": space.join(given),
        "expected": expected,
        "isRight": is_right,
        "margin": min(margins, default=None),
        "steps": steps,
    }


def _domain(folder: str, edits: list[object]) -> dict[str, object]:
    """Answer every input with a run's model under edits."""
    opened = _newest(folder)
    return answer_all(opened.model, opened.config, _read_edits(edits))


def _read_edits(forms: list[object]) -> list[Edit]:
    for each in forms:
        if isinstance(each, dict) and isinstance(each.get("recording"), str):
            raise WrongUsage("an edit from the page cannot read a recording: give its numbers.")
    return edits_from_json(forms)


@dataclass(frozen=True)
class _Opened:
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


def _continued(question: Continuation) -> tuple[list[_Step], list[float]]:
    """Continue a prompt, with one pass for each step; return the steps, and by how much the right
    token leads at each."""
    names, tokens = question.vocabulary, question.prompt
    steps: list[_Step] = []
    margins: list[float] = []
    _check_size(question.model, (tokens.shape[1] + question.num_tokens) ** 2 * question.num_tokens)
    for place in range(question.num_tokens):
        with record(question.model, _SITES) as recording:
            logits = question.model(tokens)[0, -1]
        logits[list(question.forbidden)] = -torch.inf
        choice = int(logits.argmax())
        right, expected = choice, None
        if question.expected:
            expected = question.expected[place]
            right = names.index(expected)
        others = logits.index_fill(0, torch.tensor([right]), -torch.inf)
        margins.append(float(logits[right] - others.amax()))
        step: _Step = {
            "tokens": [names[token] for token in tokens[0]],
            "answer": names[choice],
            "expected": expected,
            "probabilities": packed(logits.softmax(-1)),
            "heads": list(packed_heads(recording)),
        }
        steps.append(step)
        tokens = torch.cat((tokens, torch.tensor([[choice]])), 1)
    return steps, margins


def _traced(question: Question) -> list[_Step]:
    """Answer a question of another kind; all its steps share the heads of one pass."""
    found = question.trace()
    heads = list(packed_heads(recorded(question, _SITES)))
    steps: list[_Step] = []
    for own in found.steps:
        step: _Step = {
            "tokens": list(found.tokens),
            "answer": own.choice,
            "expected": own.expected,
            "candidates": list(own.candidates),
            "probabilities": packed(torch.tensor(own.probabilities)),
            "heads": heads,
        }
        steps.append(step)
    return steps


def _check_size(model: nn.Module, cells: int) -> None:
    heads = sum(number_of_heads(model, part) for part in attentions(model))
    needed = 9 * heads * cells
    if needed > _MOST_BYTES:
        raise TooLarge(
            f"the attention of this answer takes {needed / 1e6:,.0f} MB, and "
            f"{_MOST_BYTES / 1e6:,.0f} are allowed: ask a shorter input."
        )


class TooLarge(CouldNotRun):
    """The request would take too much memory."""

    status = 413


_WORK: dict[str, Callable[..., object]] = {
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
    try:
        status, value = 200, _WORK[asked.pop("what")](**asked)
    except AttnlabError as error:
        status = getattr(error, "status", 400 if error.exit_status == 2 else 409)
        value = {"error": str(error)}
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
