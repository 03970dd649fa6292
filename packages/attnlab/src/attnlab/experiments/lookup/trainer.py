"""One training of the run: those of the fixed table and those on new facts go alike."""

from attnlab.experiments.experiment import MetricLine, Problem, RunContext
from attnlab.train import Trained


def train_problem(
    context: RunContext, name: str, problem: Problem, label: str | None
) -> list[Trained | None]:
    """Train the members of a problem; None stands for one that diverged.

    The metrics of the first are recorded as those of the model `label`; None records none.

    Raises:
        NotFinite: the training of every member diverged.
    """

    def record(member: int, line: MetricLine) -> None:
        if member == 0 and label is not None:
            context.record({"model": label, **line})

    result = context.train(
        name, problem.members, problem.loss, stop=problem.stop, record=record, num_threads=1
    )
    return result.members
