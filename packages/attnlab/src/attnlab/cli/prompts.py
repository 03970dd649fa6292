"""Ask a model for an answer: one of our runs, or a pretrained model by folder, file or hub id."""

import logging
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli.options import NO_OPTIONS, PretrainedOptions
from attnlab.cli.progress import waiting
from attnlab.cli.resolve_run import EXPERIMENTS, RUNS, find_run, is_run, runs_in, runs_there
from attnlab.errors import CouldNotRun, WrongUsage

if TYPE_CHECKING:
    from torch import nn

    from attnlab.core.store import StateFolder
    from attnlab.look.questions import Question
    from attnlab.look.trace import Trace
    from attnlab.pretrained.model import Pretrained


_TITLE = 200  # letters of an input in the title of its page


@dataclass(frozen=True)
class Prompts:
    """A model with its question function and a description of its inputs.

    expected: what it reads, in words. note: which model of a population answers.
    """

    model: "nn.Module"
    ask: "Callable[[str], Question]"
    expected: str
    note: str = ""


def open_prompts(name: str, model_options: PretrainedOptions) -> Prompts:
    """Open a run's model, or a pretrained one, that answers inputs.

    Raises:
        WrongUsage: options that this model does not take.
        CouldNotRun: there is neither such a run nor such a model.
    """
    if is_pretrained(name):
        model = open_model(name, head=model_options.ends_in)

        def ask_it(text: str) -> "Question":
            from attnlab.look.pretrained_questions import question_of

            require_tokenizer(model)
            return question_of(
                model,
                text,
                model_options.pair,
                steps=model_options.steps,
                target=model_options.target,
            )

        return Prompts(model, ask_it, "a text")
    from attnlab.experiments import prompts
    from attnlab.experiments.population import open_run_or_member

    others = " and ".join(model_options.typed_names())
    if others:
        raise WrongUsage(f"{others}: for pretrained models only; {name} is a run.")
    folder = find_run(name)
    report = open_run_or_member(folder)
    expected = report.reader.prompt
    typical = dict(report.content.facts).get("most typical")
    note = ""
    if typical is not None:
        note = (
            f"{typical} answers, the most typical model of the population; for another: attnlab "
            f"trace {folder / 'SEED'} …"
        )
    return Prompts(report.model, partial(prompts.ask, report), expected, note)


def ask(
    name: str, words: Sequence[str], model_options: PretrainedOptions = NO_OPTIONS
) -> "Question":
    """Ask a run's model, or a pretrained one, for its answer to an input.

    Raises:
        WrongUsage: no words, or options that this model does not take.
        CouldNotRun: there is neither such a run nor such a model.
    """
    if not words and is_pretrained(name):
        raise WrongUsage("type an input after the model, before any option: a text in quotes.")
    prompts = open_prompts(name, model_options)
    if not words:
        raise WrongUsage(f"type an input after the run, before any option: {prompts.expected}.")
    return prompts.ask(" ".join(words))


def page_title(name: str, model: "nn.Module", words: Sequence[str]) -> str:
    """Return the title of an answer's page: a pretrained model's name, or that of a run's folder,
    and the input."""
    model_name = getattr(model, "name", "") or Path(name).name
    return f"{model_name}: {textwrap.shorten(' '.join(words), _TITLE, placeholder=' …')}"


def head_numbers(model: "nn.Module", heads: Sequence[str] | None) -> dict[str, list[int]]:
    """Find heads by names such as 3.5: map each site of weights to the numbers of its heads."""
    from attnlab.look.heads import attentions, chosen_heads

    if heads is None:
        return {}
    if not heads:
        raise WrongUsage("--head needs a head, LAYER.HEAD, such as 0.1.")
    chosen = chosen_heads(model, attentions(model), heads)
    return {f"{part}.weights".lstrip("."): numbers for part, numbers in chosen.items()}


def only_heads(trace: "Trace", model: "nn.Module", heads: Sequence[str]) -> "Trace":
    """Return the trace with only these heads."""
    chosen = head_numbers(model, heads)
    kept = tuple(head for head in trace.attention if head.head in chosen.get(head.site, ()))
    if not kept:
        shown = {head.site.removesuffix(".weights"): None for head in trace.attention}
        raise WrongUsage(
            f"the trace shows none of these heads; it shows those of {', '.join(shown) or 'none'}."
        )
    return replace(trace, attention=kept)


def require_tokenizer(model: "Pretrained") -> None:
    """Raise `CouldNotRun` for a model that reads text and has no tokenizer, with the remedy."""
    reads_text = getattr(model.foreign, "main_input_name", "input_ids") == "input_ids"
    if model.tokenizer is not None or not reads_text:
        return
    reasons = [note for note in model.notes if "tokenizer" in note] or ["there is no tokenizer"]
    raise CouldNotRun(
        f"{model.name} cannot read text: {'; '.join(reasons)}. Put the tokenizer's files beside "
        "the weights; or, in Python, give attnlab.load(…, tokenizer=…), or ids."
    )


def is_pretrained(name: str) -> bool:
    """Does this name mean a pretrained model: a file or folder that is no run, or a hub id?"""
    from attnlab.experiments.model_loader import is_ours

    here, in_runs = Path(name), RUNS / name
    if not name.strip() or any(map(is_ours, (here, in_runs))):
        return False
    if os.path.lexists(here):
        return is_run(here) or not runs_in(here)  # a config.json of another program
    is_missing = name in EXPERIMENTS or any(map(is_run, (in_runs, here.parent)))
    if is_missing:
        return False
    return "/" in name or not get_close_matches(here.name, runs_in(RUNS), n=1)


def open_model(name: str, **opening: Any) -> "Pretrained":
    """Open a pretrained model, with a progress message."""
    from attnlab.experiments.model_loader import load_pretrained

    with waiting(f"opening {name}") as tell, _log_to(tell):
        try:
            return load_pretrained(name, **opening)
        except CouldNotRun as error:
            if os.path.lexists(name):
                raise
            plain = "there is no folder or file"
            if str(error).startswith(plain):
                words = str(error).replace(plain, "there is no run, folder or file", 1)
                raise CouldNotRun(words) from None
            why = f": {error}"
            if "/" not in name and not Path(name).suffix:
                why = f"{why} As for runs, {runs_there(name)}"
            raise CouldNotRun(
                f"there is no run called {name}, and no such pretrained model{why}"
            ) from None


def check_corpus_command(
    command: str, model: str, folder: "StateFolder | None", *, resume: bool, hint: str = ""
) -> None:
    """Check the options with which a pretrained model is to read a corpus.

    folder: of --out · hint: added where the model is one of a run.
    """
    if not is_pretrained(model):
        raise WrongUsage(
            f"{command} is for pretrained models; {model} is a run: in Python, Corpus takes "
            f"encode=.{hint}"
        )
    if resume and folder is None:
        raise WrongUsage(f"--resume needs --out with the folder of the {command}.")
    if folder is not None and folder.is_there and not resume:
        raise WrongUsage(
            f"{folder.path} holds a {command} already: resume it with --resume, or choose another "
            "folder."
        )


def open_reader(model: str) -> "Pretrained":
    """Open a pretrained model that reads texts."""
    opened = open_model(model)
    require_tokenizer(opened)
    return opened


@contextmanager
def _log_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Pass the library's log messages to `tell`."""
    log, handler = logging.getLogger("attnlab"), logging.Handler()
    handler.emit = lambda record: tell(record.getMessage())  # type: ignore[method-assign]
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
