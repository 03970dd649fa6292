"""The suite: every circuit with its labels, in memory and as files.

As files: a safetensors file for each circuit, one JSON for all, and two scripts that need NumPy
alone: one reads and runs the circuits, one derives every label again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.core.store import digest_of, make_folder, write_json, write_tensors, write_text
from attnlab.errors import CouldNotRun
from attnlab.truth.circuits import Circuit
from attnlab.truth.dials import turned
from attnlab.truth.labels import Labels, label
from attnlab.truth.ladders import build_circuit, circuit_names

ProvedCircuit = tuple[Circuit, Labels]
SCRIPTS = ("read.py", "relabel.py")


@dataclass(frozen=True)
class Suite:
    """Circuits with their labels, and the reasons why others are left out under a dial.

    circuits: pairs of a circuit and its labels · refused: a sentence for each circuit that the dial
    breaks.
    """

    circuits: tuple[ProvedCircuit, ...]
    refused: tuple[str, ...]


def make_suite(
    ladder: str | None = None,
    dial: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Suite:
    """Make the circuits of one ladder or all, under a dial or none, and prove their labels.

    Args:
        ladder: the name of one ladder; None for all.
        dial: what makes the circuits harder, one of `DIALS`; None for none.
        progress: called with the numbers of done and of all circuits; None for nothing.

    Returns:
        the `Suite`: each circuit with its proved labels, and why others were refused.

    Raises:
        WrongUsage: there is no such ladder or dial.
    """
    circuits, refused = [], []
    names = circuit_names(ladder)
    for done, name in enumerate(names, 1):
        circuit = build_circuit(name)
        labels = label(circuit)
        try:
            if dial is not None:
                circuit, labels = turned(circuit, dial, labels)
            circuits.append((circuit, labels))
        except CouldNotRun as error:
            refused.append(str(error))
        if progress is not None:
            progress(done, len(names))
    return Suite(tuple(circuits), tuple(refused))


def write_suite(folder: Path, circuits: Iterable[ProvedCircuit]) -> int:
    """Write circuits with their labels, and the scripts that read and check them; return bytes."""
    make_folder(folder)
    facts = {}
    for circuit, labels in circuits:
        path = folder / f"{circuit.name}.safetensors"
        weights = {name: value.float() for name, value in circuit.model.state_dict().items()}
        labels_of_inputs = {"answers": circuit.answers, "by_input": labels.by_input}
        write_tensors(path, {**weights, **circuit.inputs, **labels_of_inputs})
        facts[circuit.name] = {"sha256": digest_of(path), **_facts(circuit, labels)}
    write_json(folder / "suite.json", {"format": "attnlab truth 1", "circuits": facts}, indent=None)
    for script in SCRIPTS:
        write_text(folder / script, Path(__file__).with_name(script).read_text())
    return sum(path.stat().st_size for path in folder.iterdir())


def _facts(circuit: Circuit, labels: Labels) -> dict[str, object]:
    config: Any = circuit.model.config
    prefixes = [""]
    if len(circuit.network.stacks) == 2:
        prefixes = ["encoder.", "decoder."]
    layers, edges = {}, []
    for prefix, stack in zip(prefixes, circuit.network.stacks, strict=True):
        layers[prefix] = len(stack.layers)
    for (sender, receiver), needed in zip(labels.edges, labels.edge_needed, strict=True):
        edges.append([sender, receiver, needed])
    return {
        "ladder": circuit.ladder,
        "dial": circuit.dial,
        "heads": config.num_heads,
        "head_width": config.head_width,
        "layers": layers,
        "kinds": circuit.kinds,
        "units": labels.units,
        "used": labels.used,
        "needed": labels.needed,
        "edges": edges,
    }
