"""Head census: what every head does over a corpus, in sums that add up over shards."""

from attnlab.look.census.count import count_heads, merge_censuses
from attnlab.look.census.headvis import HeadVis, open_headvis, write_headvis
from attnlab.look.census.result import Census, open_census

__all__ = [
    "Census",
    "HeadVis",
    "count_heads",
    "merge_censuses",
    "open_census",
    "open_headvis",
    "write_headvis",
]
