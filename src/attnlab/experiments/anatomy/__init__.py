"""`anatomy`: attention taken apart, one property at a time.

Eight small experiments on the house's own parts, each with its figures, its numbers over many random draws and its
claims: `scaling`, `masking`, `mask_value`, `rank`, `heads`, `position`, `normalisation`, `complexity`. Each runs by
itself with `only`.
"""

from attnlab.experiments.anatomy.anatomy import run
from attnlab.experiments.anatomy.config import NAME, AnatomyConfig

__all__ = ["NAME", "SUMMARY", "AnatomyConfig", "run"]

SUMMARY = "attention taken apart: eight properties, each measured over many draws"
