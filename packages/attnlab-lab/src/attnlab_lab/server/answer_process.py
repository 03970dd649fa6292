"""`python -m attnlab_lab.server.answer_process`: the process that answers what needs torch.

A question is a line of JSON; an answer is a line with a status and JSON, in which arrays are in the
wire form of `attnlab.draw.wire`. Lines with the status 100 before it say how far the answer is.
"""

import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from attnlab.configs import Config, Option
from attnlab.core.sizes import count_bytes, count_numbers
from attnlab.draw.wire import pack
from attnlab.edits import edit, edits_from_json
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, not_none
from attnlab.experiments import registry
from attnlab.experiments.population.storage import is_member
from attnlab.experiments.registry import learnable
from attnlab.experiments.report import open_run
from attnlab.experiments.sorting.config import SortingConfig
from attnlab.experiments.sorting.sorting_claims import with_separator
from attnlab.experiments.sweeps.axes import all_shown
from attnlab.experiments.sweeps.plan import Plan
from attnlab.look.questions import Continuation, extended
from attnlab.look.recording import record
from attnlab.look.recording.tokens import Vocabulary
from attnlab.memory import free_memory
from attnlab.models.config import TransformerConfig
from attnlab.models.storage import MODELS
from attnlab.seeds import stream_seed
from attnlab.tasks.sequences import SEPARATOR, SequenceTask
from attnlab_lab.server import course_answers, members, model_answers, program_answers
from attnlab_lab.server.heads import packed_heads

__all__: list[str] = []

_MODELS = 4  # that stay open
_SITES = ["*weights", "*scores"]
_MOST_INPUTS = 1_000
_SHOWN = ("default", "is_optional", "low", "high", "choices", "expected", "comment")


def _experiments() -> list[dict[str, object]]:
    """Describe all experiments and their settings."""
    experiments: list[dict[str, object]] = []
    for name, entry in registry.experiments().items():
        settings = list(map(_described, registry.find(name).config_class.options()))
        experiments.append({"name": name, "summary": entry.summary, "settings": settings})
    return experiments


def _described(option: Option) -> dict[str, object]:
    facts = {"name": option.name, "type": option.kind.__name__}
    return facts | {name: getattr(option, name) for name in _SHOWN}


def _check(
    experiment: str, settings: Mapping[str, object], seed: int, seeds: int = 1, sweep: bool = False
) -> dict[str, object]:
    """Check a request for a job as the command line would; return its settings as texts."""
    texts = all_shown(settings)
    stream_seed(seed)
    if sweep:
        cell_seeds = range(seed, seed + seeds)
        grid = Plan.read(experiment, texts, {}, cell_seeds, layout="auto").grid()
        for cell in grid:
            _check_memory(cell.config)
    else:
        _check_memory(registry.config(experiment, texts))
    if seeds > 1:
        learnable(experiment)
    return {"settings": texts}


def _check_memory(config: Config | None) -> None:
    """Refuse a training whose weights or attention take most of the free memory."""
    make: Callable[[], object] = getattr(config, "model_config", lambda: None)
    model, free = make(), free_memory()
    if not isinstance(model, TransformerConfig) or free is None:
        return
    classes = {config_class: model_class for model_class, config_class in MODELS.values()}
    with torch.device("meta"):
        sketch: nn.Module = classes[type(model)](model)
    weights = 4 * count_bytes(sketch.parameters())  # with gradients and two moments
    attention = 12 * model.num_layers * model.num_heads * model.max_length**2
    needed = weights + attention * int(getattr(config, "batch_size", 1))
    if needed > free / 2:
        raise RequestTooLarge(
            f"this training takes about {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} are free: "
            "choose fewer layers or heads, a smaller width or a smaller batch."
        )


class RequestTooLarge(CouldNotRun):
    """The request would take too much memory."""

    status = 413


def _ask(folder: str, text: str, edits: list[object]) -> dict[str, object]:
    """Answer an input with the model of a run of sorting under edits: each step, and every head."""
    opened, _ = _sorter(folder)
    question = opened.ask(text)
    with _edited(opened.model, edits, question.vocabulary), torch.no_grad():
        steps, margins = _continued(question)
    answer, expected = ("".join(step[name] for step in steps) for name in ("answer", "expected"))
    return {
        "input": text,
        "answer": answer,
        "expected": expected,
        "isRight": answer == expected,
        "margin": min(margins),
        "steps": steps,
    }


@torch.no_grad()
def _domain(folder: str, edits: list[object]) -> dict[str, object]:
    """Answer every input of a run of sorting greedily, SEP forbidden, under edits.

    A margin is by how much the right letter's logit leads, at the letter where it leads least.
    """
    opened, task = _sorter(folder)
    model, prompts = opened.model, task.all_prompts()
    expected = task.answer(prompts)
    tokens = with_separator(prompts)
    margins = torch.full((len(prompts),), torch.inf)
    with _edited(model, edits, task.vocabulary):
        for right in torch.split(expected, 1, dim=1):
            logits = model(tokens)[:, -1]
            logits[:, SEPARATOR] = -torch.inf
            margins = margins.minimum(_margins(logits, right))
            tokens = torch.cat((tokens, logits.argmax(1, keepdim=True)), 1)
    answers = tokens[:, task.prompt_length + 1 :]
    return {
        "inputs": list(map(task.text, prompts)),
        "answers": list(map(task.text, answers)),
        "right": (answers == expected).all(1).tolist(),
        "margins": margins.tolist(),
        "vocabulary": task.vocabulary,
        "parameters": count_numbers(model.parameters()),
    }


def _sorter(folder: str) -> tuple["_Opened", SequenceTask]:
    """Open a run of sorting, or a member of such a population, whose inputs are few."""
    home = Path(folder).parent if is_member(folder) else folder
    opened = _opened(folder, os.stat(f"{home}/claims.json").st_mtime_ns)
    if isinstance(opened.config, SortingConfig):
        task = opened.config.sequence_task()
        if task.num_prompts <= _MOST_INPUTS:
            return opened, task
    raise WrongUsage(
        f"the Bench takes runs of sorting with at most {_MOST_INPUTS:,} inputs; attnlab trace "
        "asks any run."
    )


def _margins(logits: Tensor, right: Tensor) -> Tensor:
    """Return by how much the right token of each row leads; right (rows, 1)."""
    others = logits.scatter(1, right, -torch.inf).amax(1)
    return logits.gather(1, right).squeeze(1) - others


def _edited(
    model: nn.Module, forms: list[object], vocabulary: Vocabulary | None
) -> AbstractContextManager[object]:
    """Apply edits, as JSON, while the `with` lasts."""
    for form in forms:
        if isinstance(form, dict) and isinstance(form.get("recording"), str):
            raise WrongUsage("an edit from the page cannot read a recording: give its numbers.")
    if not forms:
        return nullcontext()
    return edit(model, *edits_from_json(forms), vocabulary=vocabulary, certify=False)


@dataclass(frozen=True)
class _Opened:
    """A run whose model is open."""

    model: nn.Module
    config: Config
    ask: Callable[[str], Any]


@lru_cache(maxsize=_MODELS)
def _opened(folder: str, written: int) -> _Opened:
    """Open a run, or a member of a population, for questions; its model stays open until it is
    written anew."""
    if is_member(folder):
        report, model, config = members.open_member(Path(folder))
    else:
        report = open_run(Path(folder))
        model, config = report.model.eval(), report.reader.config
    return _Opened(model, config, partial(report.reader.ask, model))


def _continued(question: Continuation) -> tuple[list[dict[str, Any]], list[float]]:
    """Continue a prompt, with one pass for each step; return the steps, and by how much the right
    token leads at each."""
    names, tokens = question.vocabulary, question.prompt
    steps: list[dict[str, Any]] = []
    margins: list[float] = []
    for expected in not_none(question.expected):
        with record(question.model, _SITES) as recording:
            logits = question.model(tokens)[:, -1]
        logits[:, list(question.forbidden)] = -torch.inf
        choice = int(logits.argmax())
        margins.append(float(_margins(logits, torch.tensor([[names.index(expected)]]))))
        steps.append(
            {
                "tokens": [names[token] for token in tokens[0]],
                "answer": names[choice],
                "expected": expected,
                "probabilities": pack(logits[0].softmax(-1)),
                "heads": list(packed_heads(recording)),
            }
        )
        tokens = extended(tokens, [choice])
    return steps, margins


_WORK: dict[str, Callable[..., object]] = {
    "experiments": _experiments,
    "check": _check,
    **members.WORK,
    "ask": _ask,
    "domain": _domain,
    **model_answers.WORK,
    **program_answers.WORK,
    **course_answers.WORK,
}


def _answer(line: str) -> str:
    """Answer one question."""
    question = json.loads(line)
    try:
        status, value = 200, _WORK[question.pop("what")](**question)
    except AttnlabError as error:
        status = getattr(error, "status", 400 if error.exit_status == 2 else 409)
        value = {"error": str(error)}
    except OSError as error:
        status, value = 409, {"error": f"could not read {error.filename}: {error.strerror}."}
    return f"{status} {json.dumps(value)}"


def _serve() -> None:
    """Answer the lines of standard input on standard output, until our parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the check of a student's program heeds it
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the prints of other libraries go to standard error
    _write_log(answers)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)  # also in the midst of an answer

    threading.Thread(target=listen, daemon=True).start()
    while True:
        answers.write(_answer(lines.get()) + "\n")
        answers.flush()


def _write_log(answers: TextIO) -> None:
    """Write what attnlab logs, such as that it converts a file, between the answers."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            answers.write(f"100 {json.dumps(record.getMessage())}\n")
            answers.flush()

    log = logging.getLogger("attnlab")
    log.setLevel(logging.INFO)
    log.addHandler(Handler())


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["HF_HUB_OFFLINE"] = "1"  # models of the hub are read from its cache alone
    _serve()
