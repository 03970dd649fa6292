"""The old name of `attnlab.edits`, for one version."""

import warnings

from attnlab.edits import *  # noqa: F403
from attnlab.edits import __all__ as __all__

warnings.warn(
    "attnlab.operate is now called attnlab.edits; the old name goes with the next version.",
    DeprecationWarning,
    stacklevel=2,
)
