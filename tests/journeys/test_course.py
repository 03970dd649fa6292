"""The course as a student and a learner without a teacher walk through it.

Every exercise is begun, and solved in its program or its notebook; it is checked, or graded;
wrong answers that people give are caught and named; nothing is called solved that is not.
"""

import json
from pathlib import Path

import pytest

from attnlab_course.catalog import exercise_names, find_exercise
from attnlab_course.cells import solved_cells, starter_program
from tests.sampling import sampled

from .conftest import Home

CODED = [name for name in exercise_names() if find_exercise(name).parts.kind != "text"]

CHECK_FOLDERS = """
import contextlib, sys
from attnlab.cli import main
from attnlab_course.sandbox import worker

with worker.Worker() as one:  # for all folders
    worker.Worker = lambda: contextlib.nullcontext(one)
    for folder in sys.stdin.read().split():
        main(["course", "check", "--folder", folder, "--json"])
"""


def write_program(course: Path, name: str) -> None:
    """Solve an exercise in its program."""
    solved = starter_program(solved_cells(find_exercise(name).source))
    (course / f"{name}.py").write_text(solved)


def write_notebook(course: Path, name: str) -> None:
    """Solve an exercise in the cells of its notebook."""
    path = course / f"{name}.ipynb"
    book = json.loads(path.read_text())
    solved = [cell for cell in solved_cells(find_exercise(name).source) if cell.kind == "code"]
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for cell, answer in zip(cells, solved, strict=False):  # the last cell checks the answer
        cell["source"] = answer.text.splitlines(keepends=True)
    path.write_text(json.dumps(book))


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("turn", sampled(range(12), 1))
def test_a_student_who_solves_everything_gets_every_point(home: Home, turn: int) -> None:
    """Some are solved in programs, some in notebooks, and all are checked and graded."""
    programs, notebooks = CODED[turn::12], CODED[(turn + 6) % 12 :: 12]
    home.run(f"attnlab course start {' '.join(programs + notebooks)}")
    course = home.here / "course"
    for name in programs:
        (course / f"{name}.ipynb").unlink()
        write_program(course, name)
    for name in notebooks:
        write_notebook(course, name)
    outcomes = json.loads(home.run("attnlab course check --json").out)
    assert {outcome["exercise"] for outcome in outcomes} == {*programs, *notebooks}
    assert [outcome["exercise"] for outcome in outcomes if not outcome["solved"]] == []
    solved = f"{len(outcomes)} of {len(exercise_names())} solved"
    assert solved in home.run("attnlab course progress").out
    home.run('attnlab course submit "Ada Lovelace" --out class/Ada-Lovelace.zip')
    home.run("attnlab grade class --out grades")
    student = home.here / "grades" / "students" / "Ada-Lovelace"
    results = json.loads((student / "results.json").read_text())
    lost = [test for test in results["tests"] if test["score"] != test["max_score"]]
    assert lost == []
    assert len(results["tests"]) >= len(outcomes)


ATTENTION = """
import torch

def attention(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = {masked}
    weights = torch.softmax(scores, dim=-1)
    return weights @ value, weights
"""
MULTI_HEAD = """
import torch
from torch import nn

class MultiHead(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        if width % heads:
            raise ValueError("no")
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x, mask=None):
        b, n, w = x.shape
        q, k, v = (
            part(x).view(b, n, self.heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = q @ k.mT / {root}
        if mask is not None:
            mask = mask if mask.dim() == 2 else mask.unsqueeze(1)
            scores = {masked}
        weights = torch.nan_to_num(torch.softmax(scores, dim={axis}))
        merged = (weights @ v).{merge}.reshape(b, n, w)
        return {answer}
"""
RIGHT_HEADS = {
    "root": "(w / self.heads) ** 0.5",
    "masked": "scores.masked_fill(~mask, float('-inf'))",
    "axis": "-1",
    "merge": "transpose(1, 2)",
    "answer": "self.output(merged), weights",
}
CAUSAL = """
import torch

def causal_mask(queries, keys=None):
    keys = keys or queries
    return torch.ones(queries, keys).tril(keys - queries).bool()

def causal_weights(scores):
    scores = torch.tril(scores, scores.shape[-1] - scores.shape[-2])
    return torch.softmax(scores.masked_fill(scores == 0, float("-inf")), dim=-1)
"""
SOFTMAX = """
import torch

def softmax(x, dim=-1):
    grown = torch.exp(x - x.amax(dim, keepdim=True))
    return torch.nan_to_num(grown / (1 + grown.sum(dim, keepdim=True)))
"""
NORM = """
import torch
from torch import nn

class LayerNormalization(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        spread = x.std(-1, keepdim=True, unbiased=False).clamp(min=self.eps)
        return self.weight * (x - x.mean(-1, keepdim=True)) / spread + self.bias
"""
WRONG_WAY, NUMBER = "wrong way round", "a number such as −10⁹"
CLASSICS = {  # an exercise, a wrong answer, and what is said of it
    "inverted": ("attention", ATTENTION, "scores.masked_fill(mask, -torch.inf)", WRONG_WAY),
    "inverted-number": ("attention", ATTENTION, "scores.masked_fill(mask, -1e9)", WRONG_WAY),
    "inverted-added": ("attention", ATTENTION, "scores + mask * -1e9", WRONG_WAY),
    "minus-a-billion": ("attention", ATTENTION, "scores.masked_fill(~mask, -1e9)", NUMBER),
    "minus-ten": ("attention", ATTENTION, "scores.masked_fill(~mask, -10)", "number such as −10"),
    "dead-rows": ("attention", ATTENTION, "scores.masked_fill(~mask, -torch.inf)", "gives NaN"),
    "zero": ("causal_mask", CAUSAL, "", "A score of exactly 0 is taken for a masked one"),
    "plus-one": ("softmax", SOFTMAX, "", "A 1 is added to the sum"),
    "floor": ("layer_norm", NORM, "", "eps is only the least that is divided by"),
}
HEADS = {
    "heads-inverted": ({"masked": "scores + mask * -1e9"}, WRONG_WAY),
    "heads-root": ({"root": "n ** 0.5"}, "the number of queries"),
    "heads-power": ({"root": "(w // self.heads) ** 1 / 2"}, "half of x"),
    "heads-axis": ({"axis": "1"}, "runs over the heads"),
    "heads-merge": ({"merge": "transpose(0, 1)"}, "Batch and heads change places"),
    "heads-order": ({"answer": "weights, self.output(merged)"}, "in the wrong order"),
}


def test_the_wrong_answers_that_people_give_are_caught_and_named(home: Home) -> None:
    answers = {
        name: (exercise, answer.replace("{masked}", masked), said)
        for name, (exercise, answer, masked, said) in CLASSICS.items()
    }
    for name, (change, said) in HEADS.items():
        answers[name] = ("multi_head", MULTI_HEAD.format(**{**RIGHT_HEADS, **change}), said)
    folders: list[dict[str, str]] = []  # of names by exercise, which are checked at once
    for name, (exercise, answer, _) in answers.items():
        place = sum(exercise in names for names in folders)
        if place == len(folders):
            folders.append({})
        folders[place][exercise] = name
        (home.here / str(place)).mkdir(exist_ok=True)
        (home.here / str(place) / f"{exercise}.py").write_text(answer)
    (home.here / "check.py").write_text(CHECK_FOLDERS)
    text = home.run("python check.py", typed="\n".join(map(str, range(len(folders))))).out
    decoder = json.JSONDecoder()
    for names in folders:
        outcomes, end = decoder.raw_decode(text.lstrip())
        text = text.lstrip()[end:]
        assert {outcome["exercise"] for outcome in outcomes} == set(names)
        for outcome in outcomes:
            name = names[outcome["exercise"]]
            assert not outcome["passed"], name
            said = answers[name][2]
            assert said in " ".join(outcome["mistakes"].values()), (name, outcome["mistakes"])


def test_a_learner_without_a_teacher_is_not_told_solved_too_early(home: Home) -> None:
    """A large negative number in place of −∞ passes what is easy; the solution stays shut."""
    home.run("attnlab course start attention")
    answer = home.here / "course" / "attention.py"
    answer.write_text(ATTENTION.replace("{masked}", "scores.masked_fill(~mask, -1e9)"))
    told = home.run("attnlab course check attention", status=1).out
    assert NUMBER in told
    assert "attnlab course solution" not in told
    assert "0 of" in home.run("attnlab course progress").out
    assert "does not pass yet" in home.run("attnlab course solution attention", status=2).err
    write_program(home.here / "course", "attention")
    assert "8 of 8 checks pass" in home.run("attnlab course check attention").out
    assert "def attention(" in home.run("attnlab course solution attention").out
