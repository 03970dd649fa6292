"""Recordings of the values inside a model: kept, computed on demand, joined, compared, saved."""

from attnlab.look.recording.difference import Difference, RecordingComparison
from attnlab.look.recording.recorder import Reduction, record
from attnlab.look.recording.recording import Recording, open_recording
from attnlab.look.recording.tokens import TokenSides

__all__ = [
    "Difference",
    "Recording",
    "RecordingComparison",
    "Reduction",
    "TokenSides",
    "open_recording",
    "record",
]  # fmt: skip
