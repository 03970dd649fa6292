"""Recordings of the values inside a model: kept, computed on demand, joined, compared, saved."""

from attnlab.look.recording.difference import Comparison, Difference
from attnlab.look.recording.recorder import Reduction, record
from attnlab.look.recording.recording import Recording, open_recording
from attnlab.look.recording.tokens import Sides

__all__ = [
    "Comparison", "Difference", "Recording", "Reduction", "Sides", "open_recording", "record",
]  # fmt: skip
