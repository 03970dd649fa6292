"""`sentiment`: texts to verdicts, from the tokenizer to the class, beside what simple counting can do.

Two encoders are trained, a mini transformer as Vaswani et al. 2017 describe it and one that starts as naive Bayes, on
the built-in film verdicts or on any file of labelled texts, on splits that share no text, and are judged beside TF-IDF
with logistic regression. Every option is a field of `SentimentConfig`.
"""

from attnlab.experiments.sentiment.classifier import VARYING, ask, conclude, goal, lesson, prompt_words, run
from attnlab.experiments.sentiment.config import NAME, SentimentConfig

__all__ = [
    "NAME",
    "SUMMARY",
    "VARYING",
    "SentimentConfig",
    "ask",
    "conclude",
    "goal",
    "lesson",
    "prompt_words",
    "run",
]

SUMMARY = "a mini transformer reads texts and gives a verdict, judged beside simple counting on texts it never saw"
