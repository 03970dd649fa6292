"""The same edits, as JSON, do the same in the page as in Python, and are refused alike."""

import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnlab.edits import edit
from attnlab.edits.edit import edits_from_json
from attnlab.errors import AttnlabError
from attnlab.models import Decoder, DecoderConfig, generate
from attnlab.models.storage import describe_model
from attnlab.sites import site_names
from attnlab.tasks.sequences import SequenceTask
from tests.sampling import sampled

from .engine_cases import described, heard, needs_node, random_inputs, random_model, run_engine

pytestmark = needs_node

LETTERS = ("SEP", *"abcdefgh")


def tensor(values: Tensor) -> dict[str, Any]:
    dtype = str(values.dtype).removeprefix("torch.")
    return {"tensor": values.tolist(), "dtype": dtype}


def random_target(chance: random.Random, axis: str, size: int) -> Any:
    """Draw a target along an axis; now and then one that is not there."""
    one, other = sorted((chance.randrange(size), chance.randrange(size)))
    first = 1 if axis == "step" else 0
    choices: list[Any] = [one + first, f"{one + first}..{other + first}", f"{one + first}.."]
    choices.append([one + first, other + first])
    if axis != "step":
        choices += [one - size, f"..{other - size}", size + 2]
    if axis in ("query", "key"):
        choices += [chance.choice(LETTERS[:3]), ["SEP", one]]
    if axis in ("row", "head", "layer"):
        choices.append("all")
    return chance.choice(choices)


def random_form(chance: random.Random, model: nn.Module, length: int) -> dict[str, Any]:
    """Draw an edit's JSON for a model that reads so many positions."""
    heads = getattr(model.config, "num_heads", 1)  # type: ignore[union-attr]
    generator = torch.Generator().manual_seed(chance.randrange(10**6))
    draw = {"generator": generator, "dtype": torch.float64}
    pattern = torch.rand(length, length, **draw).tril()
    weights = torch.rand(1, heads, length, length, **draw).tril()
    recording = {s: tensor(weights) for s in site_names(model) if s.endswith("weights")}
    width = getattr(model.config, "d_model", 2) // heads  # type: ignore[union-attr]
    spoken = {
        s: tensor(torch.randn(1, heads, length, width, **draw))
        for s in site_names(model)
        if s.endswith("heads")
    }
    is_allowed = torch.rand(length, length, generator=generator) < 0.7
    free = ["residual_before", "residual_after", "embedding", "hidden", "logits", "query", "value"]
    forms: list[dict[str, Any]] = [
        {"edit": "CutEdge", "query": None, "key": None},
        {"edit": "CutEdge", "query": None, "key": None, "renormalise": False},
        {"edit": "SetMask", "mask": chance.choice(["all", "causal"])},
        {"edit": "SetMask", "mask": tensor(is_allowed), "key": None},
        {"edit": "RelaxMask", "query": None},
        {"edit": "ScaleScores", "factor": 2.5, "key": None},
        {"edit": "Temperature", "temperature": 0.3},
        {"edit": "AddToScores", "amount": -1.5, "query": None, "key": None},
        {"edit": "AddToScores", "amount": tensor(pattern), "key": None},
        {"edit": "AddToScores", "amount": {"number": "-inf"}, "query": None},
        {"edit": "SetPattern", "pattern": tensor(pattern)},
        {"edit": "FreezePattern", "recording": {"values": recording}},
        {"edit": "UniformPattern", "query": None},
        {"edit": "RedirectToFirst"},
        {"edit": "ZeroHead", "head": None},
        {"edit": "ScaleHead", "head": None, "factor": -0.5},
        {"edit": "MeanHead", "head": None, "over": chance.choice(["all", "rows", "positions"])},
        {"edit": "MeanHead", "head": "all", "recording": {"values": spoken}},
        {"edit": "ZeroValue", "key": None},
        {"edit": "ZeroSite", "site": chance.choice(free), "query": None},
        {"edit": "ScaleSite", "site": chance.choice(free), "factor": 3.0},
        {"edit": "MeanSite", "site": chance.choice(free), "over": "rows"},
        {"edit": "Patch", "site": "heads", "recording": {"values": spoken}},
    ]
    form = dict(chance.choice(forms))
    for axis in ("head", "query", "key"):
        if axis in form and form[axis] is None:
            form[axis] = random_target(chance, axis, heads if axis == "head" else length)
    for axis in ("layer", "row", "step", "head"):
        if axis not in form and chance.random() < 0.2:
            sizes = {"layer": 1, "row": 3, "step": 1, "head": heads}
            form[axis] = random_target(chance, axis, sizes[axis])
    if form["edit"] in ("ZeroSite", "ScaleSite", "MeanSite", "Patch") and chance.random() < 0.5:
        form["channel"] = random_target(chance, "channel", 3)
    if "site" not in form and chance.random() < 0.2:
        form["site"] = chance.choice(["*", "attention", "layers.0.*", "decoder.*", "nowhere"])
    return form | {"version": 2}


def edited_case(seed: int) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return a request for one pass under edits, and the output in Python, None if refused."""
    chance = random.Random(seed)
    model = random_model(seed)
    sent, inputs = random_inputs(model, seed)
    kind = describe_model(model)["kind"]
    length = 5 if kind == "single_head" else 6
    forms = [random_form(chance, model, length) for _ in range(chance.choice([1, 1, 2, 3]))]
    names = LETTERS[: getattr(model.config, "vocab_size", 3)]  # type: ignore[union-attr]
    request = {"what": "edited", **described(model), "inputs": sent, "edits": forms}
    request["vocabulary"] = list(names)
    try:
        edits = edits_from_json(json.dumps(forms))
        with torch.no_grad(), edit(model, *edits, vocabulary=names, certify=False):
            found = model(*inputs)
    except AttnlabError:
        return request, None
    return request, getattr(found, "output", found).numpy().ravel()


def compare(cases: list[tuple[dict[str, Any], np.ndarray | None]]) -> tuple[int, int]:
    """Hold the engine's answers against Python's; return how many were answered, and refused."""
    answers = run_engine([request for request, _ in cases])
    for answer, (request, wanted) in zip(answers, cases, strict=True):
        told = json.dumps([request["kind"], request["edits"]])[:2_000]
        assert ("refused" in answer) == (wanted is None), f"{told}: {str(answer)[:300]}"
        if wanted is not None:
            far = np.abs(heard(answer["output"]) - wanted) / np.maximum(np.abs(wanted), 1)
            assert far.max() <= 1e-12, told
    number = sum(wanted is not None for _, wanted in cases)
    return number, len(cases) - number


def test_edits_do_the_same_as_in_python():
    answered, refused = compare([edited_case(seed) for seed in range(75)])
    assert answered >= 20
    assert refused >= 10


@pytest.mark.slow
def test_edits_do_the_same_as_in_python_on_many_models():
    compare([edited_case(seed) for seed in range(75, 2_000)])


SORTER = {"vocab_size": 4, "max_length": 7, "d_model": 6, "num_heads": 2, "d_ff": 6}
FORMS = [
    [],
    [{"edit": "CutEdge", "layer": 0, "head": 1, "query": 4, "key": 1}],
    [{"edit": "CutEdge", "query": -1, "key": 0}],
    [{"edit": "CutEdge", "query": "SEP", "key": "a"}],
    [{"edit": "ZeroHead", "layer": 0, "head": 0, "step": 2}],
    [{"edit": "ScaleScores", "factor": 3.0, "step": "2..", "key": -2}],
    [{"edit": "MeanHead", "head": 1}],
    [{"edit": "UniformPattern", "head": 0}, {"edit": "RedirectToFirst", "head": 1}],
    [{"edit": "RelaxMask", "query": "0..2", "key": "1.."}],
    [{"edit": "AddToScores", "amount": 2.0, "query": "3..", "key": -1, "head": 1}],
]


def answers_in_python(model: nn.Module, task: SequenceTask, forms: Any, prompts: Tensor) -> Any:
    """Return the ids that a model answers under edits, as one batch, without a cache."""
    start = torch.nn.functional.pad(prompts, (0, 1))
    options: dict[str, Any] = {"forbidden": [0], "use_cache": False}
    if not forms:
        return generate(model, start, task.answer_length, **options)
    edits = edits_from_json(forms)
    with edit(model, *edits, vocabulary=task.vocabulary, certify=False):
        return generate(model, start, task.answer_length, **options)


@pytest.mark.parametrize("seed", sampled([0, 1], 1))
def test_answers_under_edits_are_those_of_generation_in_python(seed):
    torch.manual_seed(seed)
    model = Decoder(DecoderConfig(**SORTER, positions="learned")).double().eval()
    task = SequenceTask("sort")
    told = described(model)
    opened = {"config": {"kind": told["kind"], "config": told["config"]}}
    opened["weights"] = {"bytes": told["weights"]}
    calls: list[Any] = [["open", opened]]
    for forms in FORMS:
        calls += [["check", 1, forms], ["ask", 1, "cab", forms]]
    [(_, *found)] = run_engine([{"what": "engine", "calls": calls}])
    for forms, checked, asked in zip(FORMS, found[::2], found[1::2], strict=True):
        assert "refused" not in checked, (forms, checked)
        together = answers_in_python(model, task, forms, task.all_prompts())
        assert checked["answers"] == [task.text(row[4:]) for row in together.tokens]
        is_right = (together.tokens[:, 4:] == task.answer(task.all_prompts())).all(-1)
        assert heard(checked["right"]["array"]).tolist() == is_right.double().tolist()
        assert (heard(checked["margins"]["array"]) > 0).tolist() == is_right.tolist()
        alone = answers_in_python(model, task, forms, task.parse("cab").unsqueeze(0))
        assert asked["answer"] == task.text(alone.tokens[0, 4:])
        for step, wanted in zip(asked["steps"], alone.probabilities[0], strict=True):
            far = heard(step["probabilities"]["array"]) - wanted.numpy()
            assert np.abs(far).max() <= 1e-12


REFUSED: list[tuple[Any, str]] = [
    ({"edit": "ZeroHead"}, "edits are a list of objects"),
    ([{"edit": "ShufflePattern"}], 'there is no edit here "ShufflePattern"; there are CutEdge'),
    ([{"edit": "ZeroHead"}], "ZeroHead needs head; none was given."),
    ([{"edit": "ZeroHead", "head": 2}], "head 2 is out of range; there are 2, from 0 to 1."),
    ([{"edit": "ZeroHead", "head": 1, "hea": 1}], "there is no field of ZeroHead"),
    ([{"edit": "CutEdge", "query": 9, "key": 1}], "query 9 was never reached."),
    ([{"edit": "CutEdge", "query": 1, "key": 4}], "none of these queries attends to any of"),
    ([{"edit": "CutEdge", "query": "z", "key": 4}], 'there is no token called "z"'),
    ([{"edit": "ScaleScores", "factor": "x"}], 'factor cannot be "x"'),
    ([{"edit": "FreezePattern", "recording": "folder"}], "recording cannot be"),
    ([None], "there is no edit here"),
]


def test_an_edit_that_cannot_be_is_one_sentence():
    calls = [["create", {"seed": 1}], *(["check", 1, forms] for forms, _ in REFUSED)]
    [(_, *found)] = run_engine([{"what": "engine", "calls": calls}])
    for answer, (forms, words) in zip(found, REFUSED, strict=True):
        assert words in answer["refused"], forms
        assert answer["refused"].endswith(".")
