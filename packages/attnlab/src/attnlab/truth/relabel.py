"""Derive all labels of a suite again, with NumPy alone: python relabel.py [FOLDER] [CIRCUIT ...]

Nothing of attnlab is imported: `read.py`, which lies beside this file, runs the models, and what is
found is compared with suite.json. An answer is right if its logit leads all others by 0.05.
"""

import hashlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

LEAD = 0.05


def is_wrong(circuit: Any, cut: Any = (), edge: tuple[str, str] = ("", "")) -> Any:
    """Return for each input whether some answer is wrong under cuts."""
    logits, answers = circuit.logits(cut, edge), circuit.tensors["answers"]
    places = np.maximum(answers, 0)[..., None]
    right = np.take_along_axis(logits, places, -1)[..., 0]
    others = logits.copy()
    np.put_along_axis(others, places, -np.inf, -1)
    return (~(right - others.max(-1) >= LEAD) & (answers >= 0)).any(-1)


def used_units(circuit: Any, units: list[str]) -> set[str]:
    """Find the units that some safe set of cuts cannot spare, by all sets that are safe."""
    known: dict[frozenset[str], bool] = {frozenset(): not is_wrong(circuit).any()}
    waiting, used = [frozenset[str]()], set()
    while waiting:
        one = waiting.pop()
        for unit in units:
            more = one | {unit}
            if more not in known:
                known[more] = not is_wrong(circuit, more).any()
                waiting += [more] * known[more]
            if unit not in one and not known[more]:
                used.add(unit)
    return used


def units_of(circuit: Any) -> list[str]:
    """List the heads and the feed-forward parts that can write anything but zeros."""
    units, size = [], circuit.facts["head_width"]
    for name, weight in circuit.tensors.items():
        part = name.removesuffix(".output.weight")
        for head in range(circuit.facts["heads"] * (part != name)):
            rows = slice(head * size, (head + 1) * size)
            value = (circuit.tensors[f"{part}.value.{kind}"][rows] for kind in ("weight", "bias"))
            if weight[:, rows].any() and any(tensor.any() for tensor in value):
                units.append(f"{part}.{head}")
        if name.endswith("feed_forward.outer.weight") and weight.any():
            units.append(name.removesuffix(".outer.weight"))
    return units


def differences(circuit: Any) -> tuple[list[str], int]:
    """Return the differences from the labels of a circuit, and the number of labels."""
    labels = circuit.facts
    wrong = ["some answers are wrong"] * bool(is_wrong(circuit).any())
    units = labels["units"]
    wrong += [f"{unit} left out" for unit in set(units_of(circuit)) ^ set(units)]
    there = {edge for edge in circuit.edges if _is_edge(edge, units)}
    listed = {(sender, receiver) for sender, receiver, _ in labels["edges"]}
    wrong += [f"{edge} left out" for edge in there ^ listed]
    used = used_units(circuit, units)
    alone = np.array([is_wrong(circuit, {unit}) for unit in units]).T
    for number, unit in enumerate(units):
        if (unit in used) != labels["used"][number]:
            wrong.append(f"{unit} used")
        if bool(alone[:, number].any()) != labels["needed"][number]:
            wrong.append(f"{unit} needed")
    wrong += ["an input's units"] * int((alone != circuit.tensors["by_input"]).sum())
    wrong += _edge_differences(circuit, labels["edges"])
    return wrong, 2 * len(units) + alone.size + len(labels["edges"])


def _edge_differences(circuit: Any, edges: list[Any]) -> list[str]:
    wrong = []
    for sender, receiver, needed in edges:
        if bool(is_wrong(circuit, edge=(sender, receiver)).any()) != needed:
            wrong.append(f"{sender} to {receiver}")
    return wrong


def _is_edge(edge: tuple[str, str], units: list[str]) -> bool:
    sender, receiver = edge
    is_sender = sender in units or sender.endswith("embedding")
    return is_sender and receiver.rpartition(".")[0] in units


def main() -> None:
    """Check a folder, or some circuits of it, and exit with 1 where something differs."""
    folder = Path(__file__).parent
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
    reader = runpy.run_path(str(Path(__file__).with_name("read.py")))
    circuits = json.loads((folder / "suite.json").read_text())["circuits"]
    number, bad = 0, 0
    for name in sys.argv[2:] or circuits:
        wrong, labels = differences(reader["NumpyCircuit"](folder, name))
        content = (folder / f"{name}.safetensors").read_bytes()
        if hashlib.sha256(content).hexdigest() != circuits[name]["sha256"]:
            wrong.append("the file has changed since it was written")
        number, bad = number + labels, bad + len(wrong)
        sys.stdout.write(f"{name}: {labels:,} labels, {', '.join(wrong[:5]) or 'all agree'}\n")
    sys.stdout.write(f"{number - bad:,} of {number:,} labels agree\n")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
