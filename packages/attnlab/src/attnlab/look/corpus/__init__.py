"""Corpus search: where in many texts does a head show a pattern?"""

from attnlab.look.corpus.corpus import Corpus, Progress
from attnlab.look.corpus.measures import MEASURES, Rows
from attnlab.look.corpus.result import CorpusSearch, Example, open_search
from attnlab.look.corpus.search import search_corpus

__all__ = [
    "MEASURES",
    "Corpus",
    "CorpusSearch",
    "Example",
    "Progress",
    "Rows",
    "open_search",
    "search_corpus",
]  # fmt: skip
