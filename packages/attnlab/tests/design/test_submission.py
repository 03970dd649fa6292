import datetime
import functools
import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import attnlab
from attnlab.design import copy_first, identity, submission, submission_record, unique
from attnlab.errors import WrongUsage
from attnlab.parts.numpy_transformer import NumpyTransformer

DESIGNS = [identity(), copy_first(), unique()]


class Student(nn.Module):
    """A student's own class."""

    def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
        super().__init__()
        width = input_dim + (pos_dim or 0)
        self.Qm = nn.Linear(width, qk_dim, bias=False)
        self.Km = nn.Linear(width, qk_dim, bias=False)
        self.Vm = nn.Linear(width, v_dim, bias=False)
        self.pos = None if pos_dim is None else nn.Parameter(torch.randn(max_seq_len, pos_dim))

    def forward(self, seq):
        if self.pos is not None:
            seq = torch.cat((seq, self.pos[: len(seq)]), -1)
        query, key, value = self.Qm(seq), self.Km(seq), self.Vm(seq)
        return (query @ key.T / query.shape[-1] ** 0.5).softmax(-1) @ value


@pytest.fixture(scope="module", autouse=True)
def _proofs_once():
    """Prove each design once, however often it is submitted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "prove", functools.cache(submission.prove))
        yield


class Reordered(Student):
    """The same, whose layers are made in another order."""

    def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
        super().__init__(input_dim, qk_dim, v_dim, pos_dim, max_seq_len)
        width = input_dim + (pos_dim or 0)
        self.Vm = nn.Linear(width, v_dim, bias=False)
        self.Km = nn.Linear(width, qk_dim, bias=False)


class Unscaled(Student):
    """A student who forgets the root of the width."""

    def forward(self, seq):
        if self.pos is not None:
            seq = torch.cat((seq, self.pos[: len(seq)]), -1)
        return (self.Qm(seq) @ self.Km(seq).T).softmax(-1) @ self.Vm(seq)


def submitted(model_class):
    """A record as it is read back from its file."""
    return json.loads(json.dumps(submission_record(model_class, DESIGNS), allow_nan=False))


def test_the_record_holds_time_shapes_matrices_proofs_and_the_source_of_two_methods():
    time = datetime.datetime(2025, 5, 17, 12, tzinfo=datetime.UTC)
    record = submission_record(Student, DESIGNS, time=time)
    assert record["time"] == "2025-05-17T12:00:00+00:00"
    assert "softmax" in record["source"]["forward"]
    assert "nn.Linear" in record["source"]["__init__"]
    assert record["designs"][1]["Vm"][0] == (1.0, 0.0, 0.0)
    assert record["designs"][0]["shapes"]["Km"] == [3, 3]
    assert [each["proof"]["holds"] for each in record["designs"]] == [True] * 3


def test_the_values_at_fixed_seeds_are_those_of_the_reference_in_whatever_order_layers_are_made():
    values = submitted(Student)["values"]
    for seed, (value, case) in enumerate(zip(values, submission._CASES, strict=True)):
        arrays = submission._arrays(case, seed)
        expected = NumpyTransformer(**{name: arrays[name] for name in arrays if name != "x"})
        assert np.allclose(value["output"], expected(arrays["x"]), atol=1e-12)
        assert (value["seed"], value["length"]) == (seed, len(arrays["x"]))
    assert submitted(Reordered)["values"] == values
    wrong = submitted(Unscaled)["values"]
    same = [one == other for one, other in zip(wrong, values, strict=True)]
    assert same == [True, False, False, True]  # one key; a width of 1


def test_a_class_that_cannot_be_used_is_refused_in_words():
    class Other(nn.Module):
        def __init__(self, **widths):
            super().__init__()

    with pytest.raises(WrongUsage, match="a linear layer without bias named Km or key"):
        submitted(Other)
    with pytest.raises(WrongUsage, match="failed with"):
        submitted(nn.Linear)


def test_a_source_that_python_does_not_know_is_left_empty():
    space = {"parent": Student}
    exec("class Typed(parent):\n    def forward(self, seq): return super().forward(seq)", space)
    assert submitted(space["Typed"])["source"]["forward"] is None


def test_the_source_of_an_inherited_method_is_its_parent_s():
    class Heir(Student):
        pass

    assert submitted(Heir)["source"] == submitted(Student)["source"]
    assert submission._source(nn.Module, "__init__") is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: submission_record(3, DESIGNS), "got 3"),
        (lambda: submission_record(identity().model(), DESIGNS), "not a model made of it; got"),
        (lambda: submission_record(lambda **widths: None, DESIGNS), "got <function"),
        (lambda: submission_record(dict, DESIGNS), "expected a class of torch modules.*; got"),
        (lambda: submission_record(attnlab.SingleHead, None), "list of designs.*; got None"),
        (lambda: submission_record(attnlab.SingleHead, ["identity"]), r"got \['identity'\]"),
        (lambda: submission_record(attnlab.SingleHead, DESIGNS, time="now"), "got 'now'"),
    ],
)
def test_what_is_no_class_or_no_design_is_refused_in_one_line(call, message):
    with pytest.raises(WrongUsage) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert re.search(message, str(caught.value)), caught.value
