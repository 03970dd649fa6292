"""Corpus search: where in many texts does a head show a pattern?"""

from attnlab.look.corpus.corpus import Corpus, CorpusProgress
from attnlab.look.corpus.measures import MEASURES, WeightRows
from attnlab.look.corpus.result import CorpusSearch, Example, open_corpus_search
from attnlab.look.corpus.search import search_corpus

__all__ = [
    "MEASURES",
    "Corpus",
    "CorpusProgress",
    "CorpusSearch",
    "Example",
    "WeightRows",
    "open_corpus_search",
    "search_corpus",
]  # fmt: skip
