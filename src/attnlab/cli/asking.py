"""Whom a command line asks: a run of ours by its folder or name, or a pretrained model by folder, file or hub id."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from attnlab.cli.finding import RUNS, SYSTEMS, find_run, is_run, runs_in
from attnlab.cli.parsing import whole_number
from attnlab.cli.progress import waiting
from attnlab.errors import CouldNotRun, WrongUsage

if TYPE_CHECKING:
    from torch import nn

    from attnlab.look.questions import Question
    from attnlab.look.trace import Trace
    from attnlab.pretrained.model import Pretrained

__all__ = [
    "AS_IT_IS",
    "ForPretrained",
    "ask",
    "check_reads",
    "chosen_heads",
    "is_foreign",
    "of_heads",
    "open_model",
    "put",
    "refuse_options",
]


@Parameter(name="*")
@dataclass(frozen=True)
class ForPretrained:
    """The options that look, edit and trace have for pretrained models alone; a run knows these things itself."""

    steps: Annotated[
        int | None, Parameter(converter=whole_number, help="Of a model that generates: how many tokens at most.")
    ] = None
    target: Annotated[
        str | None, Parameter(help="What is right: the continuation, the answer, the class, the words at the masks.")
    ] = None
    pair: Annotated[str | None, Parameter(help="A second text, for models that read two.")] = None
    ends_in: Annotated[
        str | None, Parameter(help="What the model ends in: none, causal-lm, masked-lm, …; else what its files say.")
    ] = None

    def said(self) -> list[str]:
        """Name the options that were given, as they are typed."""
        return [f"--{name.replace('_', '-')}" for name, value in asdict(self).items() if value is not None]


AS_IT_IS = ForPretrained()


def ask(name: str, words: Sequence[str], how: ForPretrained = AS_IT_IS) -> "Question":
    """Put words to a run's model, or to a pretrained one.

    Raises:
        WrongUsage: no words, or options that this model does not take.
        CouldNotRun: there is neither such a run nor such a model.
    """
    if is_foreign(name):
        if not words:
            raise WrongUsage("after the model, and before any option, type what it shall read: a text in quotes.")
        return put(open_model(name, head=how.ends_in), words, how)
    from attnlab.experiments import registry
    from attnlab.experiments.population import open_run

    report = open_run(find_run(name))
    expected = registry.askable(report).prompt_words(registry.config_of(report))
    if not words:
        raise WrongUsage(f"after the run, and before any option, type what its model shall read: {expected}.")
    refuse_options(name, how)
    return registry.ask_run(report, " ".join(words))


def refuse_options(name: str, how: ForPretrained) -> None:
    """Raise where somebody gives a run what only pretrained models take."""
    if how.said():
        raise WrongUsage(f"{' and '.join(how.said())}: for pretrained models only; {name} is a run.")


def chosen_heads(model: "nn.Module", heads: Sequence[str]) -> dict[str, list[int]]:
    """Find heads by their names, such as 3.5: the site of their weights, and their numbers there."""
    from attnlab.look.heads import read_head
    from attnlab.operate.edits import ZeroHead
    from attnlab.operate.edits.where import num_heads

    if not heads:
        raise WrongUsage("--head needs a head, LAYER.HEAD, such as 0.1.")
    found: dict[str, list[int]] = {}
    for text in heads:
        edit = ZeroHead(**read_head(text))  # an edit knows how a layer, a part and a head are found
        try:
            sites = edit.sites(model)
        except WrongUsage as error:  # which names the edit that nobody made
            raise WrongUsage(f"there is no head {text}: {str(error).rpartition(f'{edit!r}: ')[2]}") from None
        for site in sites:
            part = site.rpartition(".")[0]
            try:
                numbers = edit.heads_in(num_heads(model, part), part)
            except WrongUsage:
                raise WrongUsage(
                    f"there is no head {text}: {part or 'this model'} has {num_heads(model, part)} heads, from 0."
                ) from None
            found.setdefault(f"{part}.weights" if part else "weights", []).extend(numbers)
    return {site: list(dict.fromkeys(numbers)) for site, numbers in found.items()}


def of_heads(trace: "Trace", model: "nn.Module", heads: Sequence[str]) -> "Trace":
    """Leave only these heads in a trace."""
    chosen = chosen_heads(model, heads)
    kept = tuple(each for each in trace.attention if each.head in chosen.get(each.site, ()))
    if not kept:
        known = ", ".join(dict.fromkeys(each.site.removesuffix(".weights") for each in trace.attention))
        raise WrongUsage(f"the trace shows none of these heads; it shows those of {known or 'none'}.")
    return replace(trace, attention=kept)


def put(model: "Pretrained", words: Sequence[str], how: ForPretrained) -> "Question":
    """Put words to a pretrained model."""
    from attnlab.look.texts import question_of

    check_reads(model)
    return question_of(model, " ".join(words), how.pair, steps=how.steps, target=how.target)


def check_reads(model: "Pretrained") -> None:
    """Raise for a model whose files bring no tokenizer, with what a person who types can do."""
    if model.tokenizer is None and getattr(model.foreign, "main_input_name", "input_ids") == "input_ids":
        why = "; ".join(note for note in model.notes if "tokenizer" in note) or "there is no tokenizer"
        raise CouldNotRun(
            f"{model.name} cannot read text: {why}. Put the tokenizer's files beside the weights; or, in Python, give "
            "attnlab.load(…, tokenizer=…), or ids."
        )


def is_foreign(name: str) -> bool:
    """Say whether a name means a pretrained model: a file or folder that is no run, or what can only be a hub id."""
    from attnlab.experiments.loading import is_ours

    if not name.strip():
        return False
    here = Path(name)
    if is_ours(here) or is_ours(RUNS / name) or (is_run(RUNS / name) and not os.path.lexists(here)):
        return False
    if os.path.lexists(here):
        return is_run(here) or not runs_in(here)  # a run of somebody else's: a config that is not ours
    if is_run(here.parent) or name in SYSTEMS:  # a member, or a system's run, that is not there
        return False
    return "/" in name or not get_close_matches(here.name, runs_in(RUNS), n=1)


def open_model(name: str, **opening: Any) -> "Pretrained":
    """Open a pretrained model, and say so while it lasts."""
    from attnlab.experiments.loading import load_pretrained

    with waiting(f"opening {name}") as tell, _listening(tell):
        try:
            return load_pretrained(name, **opening)
        except CouldNotRun as error:
            if os.path.lexists(name):
                raise
            raise CouldNotRun(
                f"there is no run called {name}, and no such pretrained model: {error}{_guess(Path(name))}"
            ) from None


def _guess(path: Path) -> str:
    """Name what stands there under a name that is almost the same."""
    there = os.listdir(path.parent) if os.path.isdir(path.parent) else []
    close = get_close_matches(path.name, there, n=1, cutoff=0.8)
    return f" Did you mean {path.parent / close[0]}?" if close else ""


class _Listener(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


@contextmanager
def _listening(tell: Callable[[str], None]) -> Iterator[None]:
    """Pass on what the library says of itself while it works."""
    log, listener = logging.getLogger("attnlab"), _Listener(tell)
    level = log.level
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(listener)
