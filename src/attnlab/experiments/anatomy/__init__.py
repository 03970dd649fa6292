"""`anatomy`: attention taken apart, one property at a time.

Eight small experiments on attnlab's own parts, each with figures, numbers over many random draws
and claims: `scaling`, `masking`, `mask_value`, `rank`, `heads`, `position`, `normalisation`,
`complexity`. `only` runs one of them alone.
"""

from attnlab.experiments.anatomy.anatomy import run
from attnlab.experiments.anatomy.config import NAME, AnatomyConfig

__all__ = ["NAME", "SUMMARY", "AnatomyConfig", "run"]

SUMMARY = "attention taken apart: eight properties, each measured over many draws"
