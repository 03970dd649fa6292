"""`ask`: put a text to a run's model or to a pretrained one."""

from pathlib import Path
from typing import Any

from torch import nn

from attnlab.errors import WrongUsage, did_you_mean, type_words
from attnlab.experiments.model_loader import is_ours, load
from attnlab.experiments.population.storage import open_run_or_member
from attnlab.experiments.report import Report
from attnlab.look.questions import Question
from attnlab.look.readers import reader_of

_OPTIONS = ("pair", "steps", "target")


def ask(run: Report | nn.Module | Path | str, text: str, **options: Any) -> Question:
    """Ask a model a text: the question can be traced, recorded, edited and shown.

    The question knows the model, what it is called with and what its tokens are called:
    `question.trace()` answers step by step, `recorded(question)` (or `record`, with
    `question.vocabulary`) looks inside, `fork(question, edit)` edits.

    Args:
        run: a report, a run's folder or model, or a member's (`runs/sorting-100-seeds/17`); or a
            pretrained model, live or by whatever `load` takes.
        text: what the model shall read, such as "cab". options: of a pretrained model, see
        `attnlab.look.pretrained_questions.question_of`: pair, steps,
            target.

    Returns:
        the `Question`, not yet answered.

    Raises:
        WrongUsage: the model does not answer to text, or not to this one.
        CouldNotRun: there is no such model.

    >>> import attnlab
    >>> report = attnlab.run("sorting", steps=20, evaluate_every=10)
    >>> len(ask(report, "cab").trace().steps)  # a letter each
    3
    """
    if not isinstance(run, Report | nn.Module) and is_ours(run):
        run = open_run_or_member(run)
    if not isinstance(text, str):
        raise WrongUsage(f"a question is one text; got {type_words(text)}.")
    if isinstance(run, Report):
        run = run.model
    for name in options:
        if name not in _OPTIONS:
            raise WrongUsage(f"ask takes no {name}=; {did_you_mean(name, _OPTIONS)}")
    from attnlab.look.pretrained_questions import question_of
    from attnlab.pretrained.model import Pretrained

    model = run
    reader = reader_of(model) if isinstance(model, nn.Module) else None
    if reader is not None and isinstance(model, nn.Module):
        if options:
            raise WrongUsage(
                f"a run is asked with a text alone; leave {' and '.join(options)} out."
            )
        question: Question = reader.ask(model, text)
        return question
    if not isinstance(model, Pretrained):
        model = load(model)
    if not isinstance(model, Pretrained):
        raise WrongUsage(
            f"{type(model).__name__} by itself does not know what its tokens are called; ask "
            "its run."
        )
    return question_of(model, text, **options)
