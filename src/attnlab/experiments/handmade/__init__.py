"""`handmade`: weights designed by a person, proved on every input, beside weights that were learned.

One head alone solves three tasks. Its matrices are computed from the tolerance that is asked and proved by exhaustion;
the same head learns the same tasks over many seeds; and the two are compared where a comparison means something.
"""

from attnlab.experiments.handmade.config import NAME, HandmadeConfig
from attnlab.experiments.handmade.workshop import VARYING, ask, conclude, goal, lesson, prompt_words, run

__all__ = ["NAME", "SUMMARY", "VARYING", "HandmadeConfig", "ask", "conclude", "goal", "lesson", "prompt_words", "run"]

SUMMARY = "one head's weights designed by hand and proved on every input, beside learned ones"
