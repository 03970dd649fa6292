"""Loading leaves a model as it was, to the bit: where it is accepted, and where it is refused."""

import logging
import random
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun
from tests.planting import noticed
from tests.pretrained.families import FAMILIES
from tests.pretrained.written import Attention, X
from tests.sampling import first_of_each


class Cache:
    """A cache as people write it: an object with a list of tensors."""

    def __init__(self):
        self.keys: list[Tensor] = []
        self.seen = 0


class Writing(Attention):
    """Writes into everything it has while it runs; its output does not depend on it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running", torch.tensor([0.0, float("nan")]))
        self.register_buffer("signed", torch.tensor(-0.0))
        self.register_buffer("mask", None, persistent=False)
        self.memory = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.step, self.last = 0, None
        self.trail: list[Any] = []
        self.table: dict[str, Any] = {"nested": [1, {"deep": 2}]}
        self.recent: deque[int] = deque([1, 2], maxlen=2)
        self.names = {"a"}
        self.plain, self.array = torch.zeros(2), np.zeros(2)
        self.cache, self.source = Cache(), torch.Generator().manual_seed(3)

    def forward(self, x):
        self.running += 1
        self.signed.fill_(0.0)
        if self.mask is None:
            self.mask = torch.ones(6, 6)
        self.memory.data = self.memory.data + 1
        self.memory.requires_grad_()
        self.step += 1
        self.last = x
        self.trail.append(x)
        self.table["nested"][1]["deep"] += 1
        self.table["new"] = x
        self.recent.append(self.step)
        self.names |= {str(self.step)}
        self.plain.add_(1)
        self.array += 1
        self.cache.keys.append(x)
        self.cache.seen += 1
        torch.rand(1, generator=self.source), torch.rand(1), random.random()
        np.random.rand()  # noqa: NPY002
        return super().forward(x)


class Filling(Writing):
    """Its output depends on what it has seen, so that it is refused."""

    def forward(self, x):
        return super().forward(x) + self.step


class Failing(Writing):
    """Breaks off after it has written."""

    def forward(self, x):
        super().forward(x)
        raise RuntimeError("broken")


def _bits(value):
    """Everything in a value, in a form that can be compared."""
    if isinstance(value, Tensor):
        numbers = value.detach().numpy()
        return id(value), value.data_ptr(), numbers.tobytes(), value.requires_grad
    if isinstance(value, torch.Generator):
        return _bits(value.get_state())[2]
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes()
    if isinstance(value, dict):
        return [(key, _bits(each)) for key, each in value.items()]
    if isinstance(value, list | tuple | deque | set):
        return id(value), [_bits(each) for each in value]
    if isinstance(value, nn.Module | Cache):
        return id(value), type(value), _bits(vars(value))
    return value


def _everything(model):
    shared = torch.get_rng_state().tolist(), random.getstate()
    return _bits(model), shared, str(np.random.get_state())  # noqa: NPY002


@pytest.mark.parametrize("kind", [Writing, Filling, Failing])
def test_whatever_a_model_writes_while_it_runs_is_as_before_after_load(kind):
    model = kind()
    model.query.eval()  # the others are in training mode
    before = _everything(model)
    try:
        attnlab.load(model, example=(X,))
        assert kind is Writing
    except CouldNotRun:
        assert kind is not Writing
    assert _everything(model) == before


def test_an_example_that_the_model_writes_into_is_as_before():
    class Masking(Attention):
        def forward(self, x):
            x[:, 0] = 0.0
            return super().forward(x)

    example = X.clone()
    attnlab.load(Masking(), example=(example,))
    assert torch.equal(example, X)


def test_passes_that_a_certificate_repeats_leave_no_trace_in_the_model():
    class Counting(Attention):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.tensor(0))
            self.trail: list[Tensor] = []

        def forward(self, x):
            self.calls += 1
            self.trail.append(x)
            return super().forward(x)

    model = Counting().eval()
    lab = attnlab.load(model, example=(X,))
    with torch.no_grad(), attnlab.edit(lab, attnlab.ZeroHead(layer=0, head=1)) as certificate:
        model(X)
    assert certificate.holds
    assert int(model.calls) == len(model.trail) == 1


def test_objects_of_the_standard_library_are_left_alone():
    class Logging(Attention):
        logger = logging.getLogger("attnlab.test.state")

        def __init__(self):
            super().__init__()
            self.own = self.logger

        def forward(self, x):
            self.own.handlers = [logging.NullHandler()]
            return super().forward(x)

    attnlab.load(Logging(), example=(X,))
    assert Logging.logger.handlers


def test_a_model_that_replaces_modules_while_it_runs_is_refused_and_unchanged():
    class Replacing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.kind = Attention(), "sparse"

        def forward(self, x):
            if self.kind == "sparse":
                self.inner, self.kind = Attention(), "full"
            return self.inner(x)

    model = Replacing()
    before = _everything(model)
    with pytest.raises(CouldNotRun, match=r"replaces or adds modules while it runs \(inner\)"):
        attnlab.load(model, example=(X,))
    assert _everything(model) == before


def test_a_model_with_lazy_parameters_is_refused_before_it_runs():
    model = nn.Sequential(nn.LazyLinear(16), Attention())
    with pytest.raises(CouldNotRun, match="run it once, then load it"):
        attnlab.load(model, example=(X,))
    assert isinstance(model[0], nn.LazyLinear)
    model(X)
    attnlab.load(model, example=(X,))


def test_bigbird_stays_block_sparse():
    pytest.importorskip("transformers")
    sparse = {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1}
    family = FAMILIES["big_bird (full)"]._replace(model="BigBirdModel")
    model, ids = family.build(**sparse), torch.randint(3, 90, (1, 64))
    before = model(ids)[0]
    with pytest.raises(CouldNotRun, match="replaces or adds modules"):
        attnlab.load(model)
    assert torch.equal(model(ids)[0], before)
    model.set_attention_type("original_full")
    lab = attnlab.load(model)
    with attnlab.record(lab, "*attention.weights") as recording:
        model(ids)
    assert len(recording) == 2


FAULTS = [
    ("tensors stay changed", "value.data = place", "pass"),
    ("a dict keeps what came", "value.clear()", "pass"),
    ("objects are not looked into", "not in sys.stdlib_module_names", "in ()"),
    ("python's random numbers go on", "random.setstate(python_state)", "pass"),
    ("numpy's random numbers go on", "np.random.set_state(numpy_state)", "pass"),
    ("the sign of zero is overlooked", "torch.equal(*bits)", "torch.equal(place, copied)"),
]


@pytest.mark.parametrize(("fault", "code", "wrong"), first_of_each(FAULTS, lambda _: "state"))
def test_a_planted_fault_in_keeping_the_state_is_seen(fault, code, wrong):
    with noticed("pretrained.model_state", code, wrong):
        test_whatever_a_model_writes_while_it_runs_is_as_before_after_load(Writing)
