"""`sentiment`: text classification, from the tokenizer to the class, compared with simple counting.

Two encoders are trained, a mini transformer as Vaswani et al. 2017 describe it and one that starts
as naive Bayes, on the built-in film verdicts or on any file of labelled texts, on splits that share
no text, and compared with TF-IDF and logistic regression. Every option is a field of
`SentimentConfig`.
"""

from attnlab.experiments.sentiment.config import SentimentConfig as SentimentConfig
