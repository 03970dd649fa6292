"""`handmade`: weights designed by hand and proved on every input, beside learned ones.

One head alone solves three tasks. Its matrices are computed from the tolerance and proved by
exhaustion; the same head learns the same tasks with many seeds; and the two are compared where a
comparison is meaningful.
"""

from attnlab.experiments.handmade.config import HandmadeConfig as HandmadeConfig
