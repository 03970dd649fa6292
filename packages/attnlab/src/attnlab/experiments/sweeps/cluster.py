"""`python -m attnlab.experiments.sweeps.cluster ADDRESS`: the process that talks to a Ray cluster.

It is a process of its own because Ray kills the process that talks to a cluster when the cluster
goes away, waits for minutes before it gives up, and writes to the terminal. Every unit is a task of
one processor; Ray moves a task whose worker or machine was lost to another one.
"""

import json
import logging
import sys
from collections.abc import Callable
from typing import Any

from attnlab.experiments.sweeps.line_process import serve_lines
from attnlab.experiments.sweeps.unit import compute, failure

__all__: list[str] = []

_RETRIES = 3  # of a unit whose worker was lost


def _work(take: Callable[[], str], give: Callable[[str], None]) -> None:
    import ray as module

    ray: Any = module  # Ray is typed only in part
    try:
        ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
        give(json.dumps({"processors": ray.cluster_resources().get("CPU", 0)}))
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(compute)
        while True:
            waiting = list(map(task.remote, iter(take, "")))  # an empty line ends a batch
            while waiting:
                done, waiting = ray.wait(waiting)
                for future in done:
                    give(_answer(ray.get, future))
    except Exception as error:
        give(json.dumps({"broken": type(error).__name__, "why": str(error)}))


def _answer(get: Callable[[Any], str], task: Any) -> str:
    try:
        return get(task)
    except Exception as error:  # the worker was lost too often, or has no attnlab
        last = (str(error).strip() or type(error).__name__).splitlines()[-1]
        return failure(f"Ray could not compute it: {last[:300]}.")


if __name__ == "__main__":
    serve_lines(_work)
