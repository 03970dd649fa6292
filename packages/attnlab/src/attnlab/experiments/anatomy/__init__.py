"""`anatomy`: attention taken apart, one property at a time.

Eight small experiments on attnlab's own parts, each with figures, numbers over many random draws
and claims: `scaling`, `masking`, `mask_value`, `rank`, `heads`, `position`, `normalization`,
`complexity`. `only` runs one of them alone.
"""

from attnlab.experiments.anatomy.config import AnatomyConfig as AnatomyConfig
