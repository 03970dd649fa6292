"""The smallest training there is, for one model or several, and processes that can be killed."""

import os
import signal
import sys
import time
import traceback
import warnings

import torch
from torch import nn

from attnlab import seeds
from attnlab.train import Evaluation, Member, TrainConfig, train_together

CORNERS = torch.eye(2)
WAYS = [("sequential", "eager"), ("vmap", "eager"), ("simd", "eager"), ("simd", "compiled")]


def network(seed=0):
    with seeds.isolated(seed, "model"):
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))


def make_sampler(seed=0):
    def sample(first, count):
        return (torch.randn(count, 16, 2, generator=seeds.generator(seed, "data", first)),)

    return sample


def loss(model, x):
    return (model(x) - x.sum(-1, keepdim=True)).square().mean()


def evaluate(model):
    error = (model(CORNERS) - 1).square().mean()
    return Evaluation((-error,), {"error": error})


def member(seed=0, evaluate=evaluate, sample=None, model=None, **config):
    settings = {"steps": 150, "learning_rate": 0.05, "evaluate_every": 60, **config}
    return Member(
        model or network(seed),
        TrainConfig(**settings),
        sample or make_sampler(seed),
        evaluate,
        noise=seed,
    )


def fit(folder=None, *, num=1, members=None, **options):
    """Train some members; options of the config, of a member and of the training all go here."""
    ours = {
        name: options.pop(name)
        for name in ("stop", "observer", "record", "layout", "engine")
        if name in options
    }
    ours["loss"] = options.pop("loss", loss)
    members = [member(seed, **options) for seed in range(num)] if members is None else members
    return members, train_together(members, folder=folder, **ours)


def weights(members):
    """All weights of all members, as bytes."""
    return b"".join(
        p.detach().numpy().tobytes() for each in members for p in each.model.parameters()
    )


class Watcher:
    """An observer that does something at a step."""

    def __init__(self, at=10**9, do=lambda: None):
        self.at, self.do, self.told, self.steps = at, do, [], []

    def stage(self, name): ...

    def step(self, step, steps, figures):
        self.steps.append((step, steps))
        if step >= self.at:
            self.at = 10**9
            self.do()

    def tell(self, sentence):
        self.told.append(sentence)


def begin(call, output):
    """Call a function in a fork; it ends with what that returns, 0, or 99 after an error."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forking with threads: torch's do not run here
        number = os.fork()
    if number:
        return number
    status = 99
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  open until the process ends
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        returned = call()
        status = returned if isinstance(returned, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def end(number, seconds=60.0):
    """Wait for a process and return its exit status, or minus the signal that ended it."""
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        found, status = os.waitpid(number, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    raise AssertionError(f"process {number} did not end in {seconds} s")


def kill(number, after):
    """Kill a process after some seconds, unless it has ended, and return its exit status."""
    time.sleep(after)
    os.kill(number, signal.SIGKILL)
    return end(number)
