"""The files that a population has beside those of every run.

`population.safetensors` holds the best weights of all members, stacked: (member, …).
`history.safetensors` holds the course of the training exactly; `table.csv` holds the same for
people and other programs, a line for each seed and step; `members.csv` ranks the members by how
typical they are. Their seeds and variants are in `config.json` under "population".
"""

import json
from typing import Any

from attnlab.core.store import pack
from attnlab.experiments.population.members import TrainedMembers
from attnlab.experiments.sections import csv_text

WEIGHTS, HISTORY, TABLE = "population.safetensors", "history.safetensors", "table.csv"
MEMBERS = "members.csv"


def files_of(population: TrainedMembers) -> dict[str, bytes]:
    """Return the population's own files by name."""
    tensors, facts = population.history.to_state()
    return {
        WEIGHTS: pack(population.weights),
        HISTORY: pack(tensors, {"facts": json.dumps({**facts, "layout": population.layout})}),
        TABLE: _table(population),
    }


def _table(population: TrainedMembers) -> bytes:
    """Write the metrics of all members as CSV: seed, variant, step, then every figure."""
    names = ["loss", "learning_rate", "gradient_norm", *population.history.figures()]
    rows: list[list[Any]] = []
    for index, (seed, variant) in enumerate(population.member_ids):
        merged: dict[int, dict[str, Any]] = {}
        for line in population.history.lines(index):
            merged.setdefault(line["step"], {}).update(line)
        rows += [[seed, variant, step, *map(line.get, names)] for step, line in merged.items()]
    return csv_text(["seed", "variant", "step", *names], rows).encode()
