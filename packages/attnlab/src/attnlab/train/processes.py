"""Several processes that train one model: each takes its share of every batch, and all take the
same step.

`torchrun --nproc-per-node 2 -m attnlab run sentiment` starts them. They talk through PyTorch's own
process group, gloo between CPUs and nccl between GPUs, and add up gradients by its
DistributedDataParallel (Li et al. 2020). The batch stays as it is configured, so the number of
processes changes what each of them does, not what is learned: row r of a batch goes to process r
modulo their number, and shares of different sizes count by their rows.

The first process, number 0, is the one that draws progress and writes; the others only compute.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from attnlab import seeds
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.train.history import Evaluation, plain
from attnlab.train.layouts.layout import Batch

_LOST = re.compile(r"gloo|nccl|connect|socket|broken pipe|process ?group", re.IGNORECASE)
"""How torch words it; gloo has no error class of its own."""

_joinings = itertools.count()  # all processes join as often, in the same order

_PATIENCE = timedelta(hours=1)  # with processes that still live; one that ended is noticed at once


def is_launched() -> bool:
    """Did torchrun start this process as one of several?"""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def refuse_launched(what: str) -> None:
    """Refuse a command that several processes would each run completely.

    Raises:
        WrongUsage: torchrun started this process as one of several.
    """
    if is_launched():
        raise WrongUsage(
            f"torchrun shares out one training, and {what} is many: start it without torchrun."
        )


def is_writer() -> bool:
    """Is this process the one that shows and writes: the first, or the only one?"""
    return not is_launched() or os.environ.get("RANK") == "0"


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together, as seen by one of them.

    Attributes:
        rank: its number, from 0.
        size: how many they are.
        device: where it computes.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_writer(self) -> bool:
        """Whether this process writes; the others only read."""
        return self.rank == 0

    def share(self, batch: Batch) -> tuple[Batch, float]:
        """Return this process's rows of a batch, and the weight of their mean loss among all
        processes.

        A process for which no row is left takes the first, and counts it nothing: it has to take
        part all the same.
        """
        number = len(batch[0])
        rows, count = slice(self.rank, None, self.size), len(range(self.rank, number, self.size))
        if count == 0:
            rows = slice(0, 1)
        share = tuple(part[rows].to(self.device) for part in batch)
        return share, self.size * count / number

    def noise(self, seed: int) -> int:
        """Derive this process's seed of dropout from the training's."""
        return seeds.stream_seed(seed, "process", self.rank) if self.rank else seed

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over all processes."""
        values = values.to(self.device, copy=True)
        with explained():
            dist.all_reduce(values)
        return (values / self.size).cpu()

    def any(self, flag: bool) -> bool:
        """Is it true in any process?"""
        return bool(self.mean(torch.tensor([float(flag)])) > 0)

    def agree(self, number: int, what: str) -> None:
        """Wait for all processes, and check that they have the same number.

        Raises:
            CouldNotRun: they do not.
        """
        numbers = [0] * self.size
        with explained():
            dist.all_gather_object(numbers, number)
        if len(set(numbers)) > 1:
            raise CouldNotRun(
                f"the processes of this training do not agree on {what} "
                f"({', '.join(map(str, numbers))}): start all of them with the same command, the "
                "run's folder on a disk that they share."
            )

    def judge(self, judge: Callable[[nn.Module], Evaluation]) -> Callable[[nn.Module], Evaluation]:
        """Evaluate in the first process for all, so that they decide alike whatever their
        rounding."""

        def judged(model: nn.Module) -> Evaluation:
            evaluations: list[Evaluation] = [Evaluation((), {})]
            if self.rank == 0:
                evaluations = plain(judge(model))
            with explained():
                dist.broadcast_object_list(evaluations, 0)
            return evaluations[0]

        return judged


@contextmanager
def joined() -> Iterator[ProcessGroup | None]:
    """Join the processes that torchrun started, within the `with`; None for a single process.

    Raises:
        CouldNotRun: they do not find each other.
    """
    if not is_launched():
        yield None
        return
    # One GPU for each process, or none.
    device, backend = torch.device("cpu"), "gloo"
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device, backend = torch.device("cuda", int(os.environ["LOCAL_RANK"])), "cpu:gloo,cuda:nccl"
    with explained():
        store, rank, size = next(rendezvous("env://", timeout=_PATIENCE))
        dist.init_process_group(
            backend,
            # Under a name of its own, for the store still holds what the processes said when they
            # joined before.
            store=dist.PrefixStore(f"attnlab {next(_joinings)}", store),  # type: ignore[attr-defined]
            rank=rank,
            world_size=size,
            timeout=_PATIENCE,
        )
    try:
        yield ProcessGroup(rank, size, device)
    finally:
        dist.destroy_process_group()


@contextmanager
def explained() -> Iterator[None]:
    """Turn the failure of another process into one sentence."""
    try:
        yield
    except AttnlabError:
        raise
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not _LOST.search(str(error)):
            raise
        words = re.sub(r"^\[[^]]*\] *", "", str(error).strip())
        reason = words.splitlines()[0].split(". ")[0][:120]
        raise CouldNotRun(
            f"another process of this training has ended, so number {os.environ.get('RANK', '?')} "
            f"ends too ({reason}). A run with a folder goes on with --resume."
        ) from None
