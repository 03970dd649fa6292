"""`python -m attnlab.experiments.sweeps.worker`: a process that computes units."""

from collections.abc import Callable

from attnlab.experiments.sweeps.line_process import serve_lines
from attnlab.experiments.sweeps.unit import compute

__all__: list[str] = []


def _work(take: Callable[[], str], give: Callable[[str], None]) -> None:
    while True:
        give(compute(take()))


if __name__ == "__main__":
    serve_lines(_work)
