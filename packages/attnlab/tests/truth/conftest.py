"""A few circuits of every ladder, with every decoy, proved once."""

import pytest

from attnlab.truth import build_circuit, label

SAMPLE = (
    *("where-c", "has-b", "shift", "reverse"),
    *("induction-two", "swap", "what-precedes", "half"),
)


@pytest.fixture(scope="package")
def proved():
    found = {}
    for name in SAMPLE:
        circuit = build_circuit(name)
        found[name] = (circuit, label(circuit))
    return found
