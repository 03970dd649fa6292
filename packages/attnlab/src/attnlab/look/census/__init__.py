"""Head census: what every head does over a corpus, in sums that add up over shards."""

from attnlab.look.census.count import count_heads, merge_censuses
from attnlab.look.census.result import Census, open_census

__all__ = ["Census", "count_heads", "merge_censuses", "open_census"]
