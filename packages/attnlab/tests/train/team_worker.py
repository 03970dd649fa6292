"""What each process of tests/train/test_processes.py does; torchrun starts it, with the folder to
write to."""

import json
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import attnlab
from attnlab.errors import CouldNotRun
from attnlab.train import Evaluation, Member, TrainConfig, train_together
from attnlab.train.layouts import sequential
from attnlab.train.processes import joined

SENTIMENT = {
    "seeds": 1, "epochs": 1, "best_epochs": 1, "baseline": False, "repeats": 2,
    "d_model": 16, "num_heads": 2, "num_layers": 1, "d_ff": 16, "dropout": 0.0,
}  # fmt: skip


def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()


def draw(first, count, sizes=(4, 5, 1, 2)):
    """Batches of several sizes: uneven shares, and one too small for two processes."""
    batches = []
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(sizes[step % len(sizes)], 3, generator=generator, dtype=torch.float64)
        batches.append((x, (x.sum(-1) > 0).long()))
    return batches


def loss(model, x, wanted):
    return F.cross_entropy(model(x), wanted)


def judge(model):
    x, wanted = draw(1_000, 1, sizes=(64,))[0]
    value = loss(model, x, wanted)
    return Evaluation((-value,), {"judged": value})


def trained(group, *, loss=loss, judge=judge, steps=60, **options):
    own = model()
    config = TrainConfig(steps=steps, learning_rate=1e-2, evaluate_every=20, clip=0.5)
    found = train_together(
        [Member(own, config, draw, judge, noise=7)], loss, group=group, **options
    )
    return {
        "weights": {name: value.tolist() for name, value in own.state_dict().items()},
        "losses": [line["loss"] for line in found.members[0].metrics if "loss" in line],
    }


def breaking(model, x, wanted):
    """Break on a share of three rows, which only the first process ever has."""
    value = loss(model, x, wanted)
    return value * (float("nan") if len(x) == 3 else 1.0)


def noises(group):
    """Two draws of dropout's noise, in each process."""
    seen = []

    def noisy(model, x, wanted):
        seen.append(float(torch.rand(())))
        return loss(model, x, wanted)

    own = nn.Sequential(model(), nn.Dropout(0.1))
    config = TrainConfig(steps=2, evaluate_every=2)
    train_together([Member(own, config, draw, judge, noise=7)], noisy, group=group)
    return group.mean(
        torch.eye(2, dtype=torch.float64)[group.rank].unsqueeze(-1) * torch.tensor(seen) * 2
    ).tolist()


def fickle(group):
    """Return a judge that no two processes agree with, and that stops the training at once in the
    first alone."""
    return lambda model: Evaluation((0.0,), {"rank": float(group.rank)})


def said(work):
    try:
        work()
    except CouldNotRun as error:
        return str(error)
    return "nothing"


def stopped_in_the_other(group, folder):
    """Stop the second process alone, after 25 steps; the first must end with a checkpoint of the
    same step."""
    calls = []

    def interrupting(model, x, wanted):
        calls.append(1)
        if group.rank == 1 and len(calls) == 25:
            signal.raise_signal(signal.SIGINT)
        return loss(model, x, wanted)

    try:
        trained(group, loss=interrupting, folder=folder)
    except KeyboardInterrupt:
        return "stopped"
    return "not stopped"


def not_averaged(group):
    whole = sequential.DistributedDataParallel
    sequential.DistributedDataParallel = lambda model: model
    try:
        return trained(group)
    finally:
        sequential.DistributedDataParallel = whole


def work(folder):
    torch.set_num_threads(1)
    found = {"sentiment": sentiment()}
    with joined() as group:
        found["size"] = group.size
        found["whole"] = trained(group)
        found["planted"] = not_averaged(group)
        found["noises"] = noises(group)
        found["broken"] = said(lambda: trained(group, loss=breaking))
        found["disagreed"] = said(lambda: group.agree(group.rank, "the step"))
        stop = {"stop": lambda evaluations: evaluations[-1].figures["rank"] == 0.0}
        found["stopped early"] = trained(group, judge=fickle(group), **stop)["losses"]
        found["stopped"] = stopped_in_the_other(group, folder / "checkpoints")
        found["resumed"] = trained(group, folder=folder / "checkpoints")
        if group.is_writer:
            (folder / "found.json").write_text(json.dumps(found))


def sentiment():
    report = attnlab.run("sentiment", **SENTIMENT)
    return [line for line in report.metrics if "loss" in line or "validation_loss" in line]


if __name__ == "__main__":
    work(Path(sys.argv[1]))
