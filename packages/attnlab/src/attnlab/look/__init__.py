"""Look: read a model without changing it."""

from attnlab.look.causality import largest_change, largest_leak
from attnlab.look.recording import (
    Recording,
    RecordingComparison,
    TokenSides,
    open_recording,
    record,
)
from attnlab.look.summaries import Summarize, Summary, summarize
from attnlab.look.trace import Trace, trace

__all__ = [
    "Recording",
    "RecordingComparison",
    "Summarize",
    "Summary",
    "TokenSides",
    "Trace",
    "largest_change",
    "largest_leak",
    "open_recording",
    "record",
    "summarize",
    "trace",
]  # fmt: skip
