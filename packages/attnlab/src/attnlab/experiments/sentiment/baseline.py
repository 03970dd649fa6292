"""The baselines: TF-IDF and logistic regression, on the same split, in two sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.configs import Fields
from attnlab.errors import CouldNotRun
from attnlab.tasks.texts import TextSplit


@dataclass(frozen=True)
class Recipe:
    """A baseline's settings.

    key: its name in claims. about: its description. features: options of TF-IDF. freedom: the
    inverse regularization C of scikit-learn's logistic regression.
    """

    key: str
    about: str
    features: Fields
    freedom: float = 1.0


BASELINES: dict[str, Recipe] = {
    "TF-IDF pairs + LR": Recipe(
        "tfidf_pairs",
        "the strong baseline",
        {"ngram_range": (1, 2), "sublinear_tf": True},
        freedom=10.0,
    ),
    "TF-IDF 500 + LR": Recipe(
        "tfidf_500", "the usual small baseline", {"max_features": 500, "stop_words": "english"}
    ),
}
"""The strong baseline comes first, since a model has to beat this one: with pairs of words, all
features, logarithms of counts, and a tenth of the regularization, which gains two points of
accuracy on short sentences and six on long reviews. LR is logistic regression."""


@dataclass(frozen=True)
class TrainedBaseline:
    """A trained baseline: its answers on the test texts, (texts,) class numbers, and its size."""

    name: str
    recipe: Recipe
    answers: Tensor
    num_parameters: int


def require_library() -> None:
    """Raise `CouldNotRun` if scikit-learn is missing."""
    try:
        import sklearn  # noqa: F401  asked for, not used
    except ImportError:
        raise CouldNotRun(
            "the baselines need scikit-learn; install it with: pip install 'attnlab[baseline]', "
            "or leave them out with --set baseline=false."
        ) from None


def train_baselines(split: TextSplit, classes: Sequence[str]) -> list[TrainedBaseline]:
    """Train both on the training texts, and evaluate them on the test texts."""
    require_library()
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    number = {name: place for place, name in enumerate(classes)}
    baselines = []
    for name, recipe in BASELINES.items():
        vectorizer = TfidfVectorizer(**recipe.features)
        try:
            features = vectorizer.fit_transform([row.text for row in split.train])
        except ValueError:  # the texts hold stop words alone, or no words at all
            continue
        model = LogisticRegression(C=recipe.freedom, max_iter=1_000)
        model.fit(features, [row.label for row in split.train])
        predicted = model.predict(vectorizer.transform([row.text for row in split.test]))
        answers = torch.tensor([number[label] for label in predicted])
        size = model.coef_.size + model.intercept_.size
        baselines.append(TrainedBaseline(name, recipe, answers, size))
    return baselines
