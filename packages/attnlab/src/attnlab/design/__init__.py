"""Design: weights written by hand or computed from a requirement, and proved on every input."""

from attnlab.design.designs import Design, copy_first, design_for, identity, unique
from attnlab.design.gauge import ScoreTable, gauge_change, score_table
from attnlab.design.proof import Counterexample, Proof, prove
from attnlab.design.submission import submission_record

__all__ = [
    "Counterexample", "Design", "Proof", "ScoreTable", "copy_first", "design_for",
    "gauge_change", "identity", "prove", "score_table", "submission_record", "unique",
]  # fmt: skip
