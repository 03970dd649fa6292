"""`sorting`: a decoder of 480 parameters learns to sort three letters, and shows how.

Trained on rows `c a b SEP a b c`, it is judged on every input of its domain, held against the least loss that is
possible, and traced step by step. Its queries, keys and values are made from factorised matrices; every option of
the model, the task and the training is a field of `SortingConfig`.
"""

from attnlab.experiments.sorting.config import NAME, SortingConfig
from attnlab.experiments.sorting.sorter import VARYING, ask, conclude, goal, lesson, prompt_words, run

__all__ = ["NAME", "SUMMARY", "VARYING", "SortingConfig", "ask", "conclude", "goal", "lesson", "prompt_words", "run"]

SUMMARY = "a decoder of 480 parameters learns to sort letters, and shows where it looks"
