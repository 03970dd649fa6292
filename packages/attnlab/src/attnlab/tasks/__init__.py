"""Tasks: vocabulary, data, enumeration and scoring, one family a file; they know no model."""

from attnlab.tasks.sequences import SequenceTask

__all__ = ["SequenceTask"]
