"""`python -m attnlab.experiments.sweeps.worker`: a process that computes units, a line in, a line out."""

from collections.abc import Callable

from attnlab.experiments.sweeps.helper import attend_to
from attnlab.experiments.sweeps.unit import compute

__all__: list[str] = []


def _work(take: Callable[[], str], give: Callable[[str], None]) -> None:
    while True:
        give(compute(take()))


if __name__ == "__main__":
    attend_to(_work)
