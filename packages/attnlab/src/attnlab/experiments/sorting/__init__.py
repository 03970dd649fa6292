"""`sorting`: a decoder of 480 parameters learns to sort three letters, and shows how.

Trained on rows `c a b SEP a b c`, it is evaluated on every input of its domain, compared with the
least possible loss, and traced step by step. Its queries, keys and values come from factorized
matrices; every option of the model, the task and the training is a field of `SortingConfig`.
"""

from attnlab.experiments.sorting.config import SortingConfig as SortingConfig
