"""Look: read a model without changing it."""

from attnlab.look.causality import largest_change, largest_leak
from attnlab.look.recording import Recording, record
from attnlab.look.trace import Trace, trace

__all__ = ["Recording", "Trace", "largest_change", "largest_leak", "record", "trace"]
