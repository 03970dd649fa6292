"""Train: fit a model, or many at once, to a task, and keep what it takes to go on."""

from attnlab.train.config import EngineName, LayoutName, TrainConfig
from attnlab.train.history import History, Judgement
from attnlab.train.loop import Member, Together, Trained, train, train_together
from attnlab.train.observer import Observer

__all__ = [
    "EngineName",
    "History",
    "Judgement",
    "LayoutName",
    "Member",
    "Observer",
    "Together",
    "TrainConfig",
    "Trained",
    "train",
    "train_together",
]
