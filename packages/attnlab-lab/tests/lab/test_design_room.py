"""The room Design: it says of a head what attnlab proves; its controls, links and puzzles."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlab.design import design_for, prove
from attnlab.design.proof import Proof
from attnlab.models.single_head import SingleHead
from attnlab.tasks.vectors import VectorTask, vector_task
from tests.sampling import sampled

from .engine_cases import ENGINE, needs_node
from .playing import Open, follow

RULES = ("identity", "copy_first", "unique")
RUNNER = Path(__file__).parent / "design_runner.mjs"


def run_node(requests: list[dict[str, Any]], engine: Path = ENGINE) -> list[Any]:
    command = ["node", str(RUNNER), str(engine)]
    told = {"input": json.dumps(requests), "capture_output": True, "text": True}
    found = subprocess.run(command, check=False, **told)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def random_head(task: VectorTask, seed: int) -> dict[str, Any]:
    """Return a design with noise on every number: some of its inputs fail, some do not."""
    generator = torch.Generator().manual_seed(seed)
    size = (0.1, 0.2, 0.4)[seed % 3]

    def noisy(rows: Any) -> Any:
        if rows is None:
            return None
        matrix = torch.tensor(rows, dtype=torch.float64)
        noise = torch.randn(matrix.shape, generator=generator, dtype=torch.float64)
        return (matrix + size * noise).tolist()

    made = design_for(task, 1e-3).with_gain(1.0)
    matrices = {name: noisy(getattr(made, name)) for name in ("Km", "Qm", "Vm", "pos")}
    return {**matrices, "gain": 5.0}


def proof_of(head: dict[str, Any], task: VectorTask, tolerance: float | None) -> Proof:
    return prove(model_of(head), task, tolerance=tolerance)


def model_of(head: dict[str, Any]) -> SingleHead:
    loud = [[value * head["gain"] for value in row] for row in head["Qm"]]
    return SingleHead.from_matrices(head["Km"], loud, head["Vm"], head["pos"])


@cache
def cases() -> list[tuple[VectorTask, dict[str, Any], float | None, Proof, list[Any]]]:
    """Random heads with their proofs, and what they read and say of all inputs, by length."""
    tasks = [*map(vector_task, RULES), VectorTask("identity", 2, 3), VectorTask("unique", 4, 3)]
    found = []
    for task in tasks:
        for seed, tolerance in enumerate((None, 0.5, 0.1)):
            head = random_head(task, seed)
            with torch.no_grad():
                read = [
                    model_of(head)(task.vectors(ids, torch.float64))
                    for ids in task.inputs_by_length()
                ]
            found.append((task, head, tolerance, proof_of(head, task, tolerance), read))
    return found


def largest_distance(engine: Path = ENGINE) -> float:
    """Check random heads in JavaScript and in Python; return the largest distance of any number.

    A verdict that differs counts as an infinite distance.
    """
    requests = [
        {
            "what": "check",
            "task": {"rule": task.rule, "letters": task.letters, "longest": task.longest},
            "head": head,
            "tolerance": tolerance,
        }
        for task, head, tolerance, *_ in cases()
    ]
    worst = 0.0
    for found, (*_, proof, answers) in zip(run_node(requests, engine), cases(), strict=True):
        first = proof.counterexample and proof.counterexample.input.removeprefix("CLS ")
        told = found["first"] and found["texts"][found["first"]["index"]]
        names = (found["failures"], told, found["texts"][found["worst"]])
        if names != (proof.failures, first, proof.worst_input.removeprefix("CLS ")):
            return float("inf")
        distances = [found["error"] - proof.worst_error, found["margin"] - proof.margin]
        for answer in answers:
            number = len(answer.output)
            read, found["read"] = found["read"][:number], found["read"][number:]
            for name, wanted in (("weights", answer.weights.squeeze(1)), ("output", answer.output)):
                got = [[place[name] for place in row] for row in read]
                distance = torch.tensor(got, dtype=torch.float64) - wanted
                distances.append(float(distance.abs().max()))
        worst = max(worst, *map(abs, distances))
    return worst


@needs_node
def test_every_number_of_the_check_is_that_of_attnlab_prove() -> None:
    assert largest_distance() <= 1e-12


FAULTS = {
    "a scale": ("gain / Math.sqrt(Km[0].length)", "gain / Math.sqrt(Km.length)"),
    "a position": ("task.inputDim + i][column]", "task.inputDim + Math.max(i - 1, 0)][column]"),
    "a task": ("ids.filter((id) => id === ids[place])", "ids.filter((id) => id >= ids[place])"),
    "a margin": ("tolerance - found.error", "tolerance - found.error * 0.999"),
    "a place": ("found.first ??= { index, place }", "found.first = { index, place }"),
    "a bound": ("clearance > 0 && (tolerance", "clearance > -0.05 && (tolerance"),
}


@needs_node
@pytest.mark.parametrize("name", sampled(FAULTS, 1))
def test_a_planted_fault_is_caught(name: str, tmp_path: Path) -> None:
    line, fault = FAULTS[name]
    engine = tmp_path / "engine"
    shutil.copytree(ENGINE, engine)
    source = (engine / "vectors.js").read_text()
    assert source.count(line) == 1
    (engine / "vectors.js").write_text(source.replace(line, fault))
    assert largest_distance(engine) > 1e-12


@needs_node
def test_a_design_that_works_is_that_of_attnlab() -> None:
    asked = [(rule, tolerance) for rule in RULES for tolerance in (0.1, 1e-3, 1e-6)]
    requests = [{"what": "design", "task": {"rule": r}, "tolerance": t} for r, t in asked]
    for found, (rule, tolerance) in zip(run_node(requests), asked, strict=True):
        design = design_for(rule, tolerance)
        assert found["gain"] == design.gain
        assert proof_of(found, design.task, tolerance).holds
        for name in ("Km", "Qm", "Vm", "pos"):
            factor = design.gain if name == "Qm" else 1.0
            wanted = getattr(design, name)
            rows = found[name] and [[factor * value for value in row] for row in found[name]]
            assert rows == (wanted and [list(row) for row in wanted])


SOLUTIONS: dict[str, list[str]] = {
    "louder": ["gain,6.6"],
    "answers": [f"Vm,{i},{j},{int(i == j)}" for i in range(3) for j in range(3)],
    "shuffled": ["Qm,0,1,1", "Qm,1,2,1", "Qm,2,0,1"],
    "first": ["Qm,0,0,1", "Qm,1,0,1", "Qm,2,0,1"],
    "marks": ["pos,0,0,1"],
    "narrow": ["Km,0,0,1", "Qm,0,0,1", "Qm,1,0,-1"],
    "plane": ["Km,0,0,1", "Km,1,1,1", "Qm,0,0,1", "Qm,1,1,1", "Qm,2,0,-1", "Qm,2,1,-1"],
    "alone": [f"Qm,{4 + i},{3 + i},-2" for i in range(4)],
    "whisper": ["gain,6.41"],
    "unit": [f"Qm,{i},{i},6.6" for i in range(3)],
    "words": ["Vm,0,0,-1", "Vm,1,0,-1", "Vm,2,0,-1", "Vm,3,0,1"],
    "square": [
        f"{matrix},{i},{i // 2},{1 - 2 * (i % 2)}" for matrix in ("Km", "Qm") for i in range(4)
    ],
    "whole": ["Km,2,0,1", "Qm,0,0,1", "Qm,1,0,1", "Vm,0,0,1", "Vm,1,1,1"],
}


def link_of(*words: str) -> str:
    return f"#v=1&room=design&head={'~'.join(words)}"


def score(page: Any) -> str:
    return page.locator(".score").inner_text()


def rights(page: Any) -> int:
    return page.locator(".square[data-state=right]").count()


def python_of(page: Any) -> Proof:
    """Run the Python lines that the page shows; return the proof that they make."""
    found: dict[str, Any] = {}
    exec(page.locator(".code-part code").text_content(), found)
    proof = found["proof"]
    assert isinstance(proof, Proof)
    return proof


def set_cell(page: Any, label: str, value: str) -> None:
    page.get_by_label(label, exact=True).fill(value)


def test_the_page_says_of_a_head_what_python_proves(open_lab: Open) -> None:
    page = open_lab(link_of("copy_first"))
    assert score(page).startswith("120 of 120 Holds on all 120 inputs.")
    assert python_of(page).holds
    set_cell(page, "Km, pos 3, 1", "0.75")  # now the third place looks like the first
    proof = python_of(page)
    assert not proof.holds
    assert rights(page) == proof.inputs - proof.failures
    failure = proof.counterexample
    assert failure is not None
    got = " ".join(f"{value:.5f}".rstrip("0").rstrip(".") for value in failure.got)
    assert f"The first that fails: {failure.input}." in score(page)
    assert f"At {failure.token} in place {failure.place} it says ({got})" in score(page)
    shown = page.locator(".margin-value").first.inner_text().replace("−", "-")
    assert float(shown) == pytest.approx(proof.margin, rel=5e-3)
    page.get_by_label("Km, pos 3, 1", exact=True).press("Control+z")
    assert rights(page) == 120


def test_a_task_opens_on_no_solution_of_an_exercise(open_lab: Open) -> None:
    page = open_lab("#v=1&room=design")
    for task in ("Identity", "Copy the first", "Unique or not"):
        page.get_by_role("button", name=task, exact=True).click()
        assert not python_of(page).holds
        page.get_by_role("button", name="A design that works").click()
        assert python_of(page).holds


@pytest.mark.slow
def test_all_by_keyboard_and_the_link_brings_it_back(open_lab: Open) -> None:
    page = open_lab(link_of("unique"))
    cell = page.get_by_label("Km, A, 1", exact=True)
    cell.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Km, B, 2"
    page.keyboard.press("Space")
    assert page.evaluate("document.activeElement.value") == "0"
    page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Alt+ArrowDown")
    assert page.evaluate("document.activeElement.value") == "1.9"
    page.keyboard.type("x")
    assert "Expected a number" in page.locator(".message").last.inner_text()
    page.keyboard.press("Control+a")
    page.keyboard.type("-0.5")
    page.locator("#one-input").fill("bab")
    page.wait_for_function("() => location.hash.includes('Km,1,1,-0.5~in,BAB')")
    told = (score(page), python_of(page).digest, page.locator(".outputs").inner_text())
    other = open_lab(page.evaluate("location.hash"))
    assert told == (score(other), python_of(other).digest, other.locator(".outputs").inner_text())
    page.locator("h1").click()
    page.keyboard.press("z")
    assert page.get_by_label("Km, B, 2", exact=True).input_value() == "1"
    page.keyboard.press("Shift+Z")
    assert page.get_by_label("Km, B, 2", exact=True).input_value() == "−0.5"


@pytest.mark.slow
def test_the_twin_learns_the_same_head_as_in_node_and_stands_beside(open_lab: Open) -> None:
    page = open_lab(link_of("copy_first", "worked", "nearest"))
    page.wait_for_selector("text=Done after", timeout=60_000)
    assert page.locator(".twin-part canvas").count() == 2
    row = re.sub(r"\s+", " ", page.locator(".twins").inner_text())
    [head] = run_node([{"what": "twin", "rule": {"rule": "copy_first", "seed": 1}, "settings": {}}])
    proof = proof_of(head, vector_task("copy_first"), None)
    assert f"120 of 120 {proof.inputs - proof.failures} of 120" in row
    assert f"Largest error 0.000992 {proof.worst_error:.3g}" in row


def test_every_puzzle_is_solved_by_its_solution_and_not_before(open_lab: Open) -> None:
    page = open_lab(link_of("louder"))
    for name, solution in SOLUTIONS.items():
        follow(page, link_of(name))
        assert not python_of(page).holds, name
        follow(page, link_of(name, "worked", "0.001", *solution))
        told = re.search(
            r"Solved, on every input, with \D*(\S+?)[ ;].*ours has (\S+)\.$", score(page)
        )
        assert told, (name, score(page))
        assert told[1] == told[2], name
        assert python_of(page).holds, name
    listed = page.get_by_role("group", name="Puzzles").get_by_role("button").all_inner_texts()
    assert len(listed) == len(SOLUTIONS)
    assert all(each.endswith("✓") for each in listed)
