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
from attnlab.tasks.sequences import SequenceTask
from tests.sampling import sampled

from .engine_cases import described, heard, needs_node, random_inputs, random_model, run_engine

pytestmark = needs_node


def tensor(values: Tensor) -> dict[str, Any]:
    dtype = str(values.dtype).removeprefix("torch.")
    return {"tensor": values.tolist(), "dtype": dtype}


def random_form(chance: random.Random, model: Decoder, length: int) -> dict[str, Any]:
    """Draw an edit's JSON for a head of a model that reads so many positions; some do not fit."""
    heads, layer = model.config.num_heads, chance.randrange(model.config.num_layers)
    generator = torch.Generator().manual_seed(chance.randrange(10**6))
    pattern = torch.rand(1, heads, 7, 7, generator=generator, dtype=torch.float64).tril()
    pattern[..., length:] = 0  # more than is read, as a page sends what it has of a whole row
    recorded = {f"layers.{layer}.attention.weights": tensor(pattern)}
    is_allowed = torch.rand(7, 7, generator=generator) < 0.7
    edge = {"query": chance.randrange(length + 1), "key": chance.randrange(length)}
    forms: list[dict[str, Any]] = [
        {"edit": "CutEdge", **edge},
        {"edit": "SetMask", "mask": tensor(is_allowed)},
        {"edit": "AddToScores", "amount": chance.choice([-1.5, 2.0]), **edge},
        {"edit": "FreezePattern", "recording": {"values": recorded}},
        {"edit": "UniformPattern"},
        {"edit": "RedirectToFirst"},
        {"edit": "ZeroHead"},
    ]
    return chance.choice(forms) | {"layer": layer, "head": chance.randrange(heads)}


def edited_case(seed: int) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return a request for one pass under edits, and the output in Python, None if refused."""
    chance = random.Random(seed)
    model = random_model(seed, "decoder")
    sent, inputs = random_inputs(model, seed)
    forms = [random_form(chance, model, 6) for _ in range(chance.choice([1, 1, 2, 3]))]
    request = {"what": "edited", **described(model), "inputs": sent, "edits": forms}
    try:
        edits = edits_from_json(json.dumps(forms))
        with torch.no_grad(), edit(model, *edits, certify=False):
            return request, model(*inputs).numpy().ravel()
    except AttnlabError:
        return request, None


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
    [{"edit": "ZeroHead", "layer": 0, "head": 0}],
    [{"edit": kind, "layer": 0, "head": 0} for kind in ("UniformPattern", "RedirectToFirst")],
    [{"edit": "AddToScores", "amount": 2.0, "layer": 0, "query": 3, "key": 2, "head": 1}],
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


HEAD = {"layer": 0, "head": 0}
REFUSED: list[tuple[Any, str]] = [
    ([{"edit": "ShufflePattern"}], 'there is no edit here "ShufflePattern"; there are CutEdge'),
    ([{"edit": "ZeroHead", "layer": 0, "head": 2}], "head must be a whole number from 0 to 1"),
    ([{"edit": "CutEdge", **HEAD, "query": 9, "key": 1}], "query or key was never reached."),
    ([{"edit": "CutEdge", **HEAD, "query": 1, "key": 4}], "does not attend to this key anyway"),
]


def test_an_edit_that_cannot_be_is_one_sentence():
    calls = [["create", {"seed": 1}], *(["check", 1, forms] for forms, _ in REFUSED)]
    [(_, *found)] = run_engine([{"what": "engine", "calls": calls}])
    for answer, (forms, words) in zip(found, REFUSED, strict=True):
        assert words in answer["refused"], forms
        assert answer["refused"].endswith(".")
