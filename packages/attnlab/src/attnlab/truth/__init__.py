"""Ground truth: small models in which the role of each head is known, by ablation."""

from attnlab.truth.circuits import Circuit
from attnlab.truth.dials import DIALS, turned
from attnlab.truth.labels import Labels, label
from attnlab.truth.ladders import LADDERS, build_circuit, circuit_names
from attnlab.truth.methods import METHODS, find_method
from attnlab.truth.score import score, summarize_scores
from attnlab.truth.suite import Suite, make_suite, write_suite

__all__ = [
    "DIALS", "LADDERS", "METHODS", "Circuit", "Labels", "Suite", "build_circuit", "circuit_names",
    "find_method", "label", "make_suite", "score", "summarize_scores", "turned", "write_suite",
]  # fmt: skip
