"""What a transformer has to beat: TF-IDF and logistic regression, on the same split, in two sizes."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.tasks.texts import Split

__all__ = ["BASELINES", "Baseline", "require_library", "train_baselines"]


class Recipe(NamedTuple):
    """What TF-IDF is told, and how little the logistic regression is held back (C of scikit-learn, usually 1)."""

    features: dict[str, Any]
    freedom: float = 1.0


BASELINES: dict[str, Recipe] = {
    "TF-IDF 500 + LR": Recipe({"max_features": 500, "stop_words": "english"}),
    "TF-IDF pairs + LR": Recipe({"ngram_range": (1, 2), "sublinear_tf": True}, freedom=10.0),
}
"""The usual small baseline, and a strong one: pairs of words too, all features, logarithms of counts, and ten times the
freedom, which is worth two points of accuracy on short sentences and six on long reviews. LR is logistic regression."""


class Baseline(NamedTuple):
    """A baseline: its answers on the test texts, (texts,) boolean, and how many numbers it learnt."""

    name: str
    correct: Tensor
    num_features: int
    num_parameters: int


def require_library() -> None:
    """Say at once, before anything long, if scikit-learn is missing."""
    try:
        import sklearn  # noqa: F401  asked for, not used
    except ImportError:
        raise CouldNotRun(
            "the baselines need scikit-learn; install it with: pip install 'attnlab[baseline]', "
            "or leave them out with --set baseline=false."
        ) from None


def train_baselines(split: Split) -> list[Baseline]:
    """Train both on the training texts and put them to the test texts."""
    require_library()
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    found = []
    for name, recipe in BASELINES.items():
        vectorizer = TfidfVectorizer(**recipe.features)
        try:
            features = vectorizer.fit_transform([row.text for row in split.train])
        except ValueError:  # the texts hold stop words alone, or no words at all
            continue
        model = LogisticRegression(C=recipe.freedom, max_iter=1_000).fit(features, [row.label for row in split.train])
        answers = model.predict(vectorizer.transform([row.text for row in split.test]))
        correct = torch.tensor([answer == row.label for answer, row in zip(answers, split.test, strict=True)])
        size = model.coef_.size + model.intercept_.size
        found.append(Baseline(name, correct, features.shape[1], size))
    return found
