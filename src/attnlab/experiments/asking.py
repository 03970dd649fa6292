"""Asking a run: what a person types, put to the run's model."""

from pathlib import Path

from attnlab.experiments import registry
from attnlab.experiments.population import open_run
from attnlab.experiments.report import Report
from attnlab.look.questions import Question

__all__ = ["ask"]


def ask(run: Report | Path | str, text: str) -> Question:
    """Put a text to a run's model, as the command line does.

    The question knows the model, what it is called with and what its tokens are called: `question.trace()` answers step
    by step, `recorded(question)` (or `record`, with `question.vocabulary`) looks inside, `fork(question, edit)` edits.

    Args:
        run: a report, a run's folder, or a member's (`runs/sorting-100-seeds/17`).
        text: what the model shall read, such as "cab".

    Raises:
        WrongUsage: the run's model does not answer to text, or not to this one.
        CouldNotRun: there is no such run.
    """
    return registry.ask_run(run if isinstance(run, Report) else open_run(run), text)
