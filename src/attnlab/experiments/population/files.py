"""The files that a population has beside those of every run.

`population.safetensors` holds the best weights of all members, stacked: (member, …).
`history.safetensors` holds the course of the training exactly; `table.csv` holds the same for
people and other programs, a line for each seed and step; `members.csv` ranks the members by how
typical they are. Their seeds and variants are in `config.json` under "population".
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

import safetensors.torch

from attnlab.experiments.population.members import TrainedMembers

__all__ = ["HISTORY", "MEMBERS", "TABLE", "WEIGHTS", "csv_bytes", "files_of"]

WEIGHTS, HISTORY, TABLE = "population.safetensors", "history.safetensors", "table.csv"
MEMBERS = "members.csv"


def files_of(population: TrainedMembers) -> dict[str, bytes]:
    """Return the population's own files by name."""
    tensors, facts = population.history.to_state()
    weights = {name: value.contiguous() for name, value in population.weights.items()}
    return {
        WEIGHTS: safetensors.torch.save(weights),
        HISTORY: safetensors.torch.save(
            {name: value.contiguous() for name, value in tensors.items()},
            metadata={"facts": json.dumps({**facts, "layout": population.layout})},
        ),
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
    return csv_bytes(["seed", "variant", "step", *names], rows)


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Write a table as CSV; None is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([columns, *rows])
    return stream.getvalue().encode()
