"""Train: fit a model, or many at once, to a task, and write the checkpoints to resume from."""

from attnlab.train.config import EngineName, LayoutName, TrainConfig
from attnlab.train.history import Evaluation, History
from attnlab.train.loop import Member, Trained, TrainResult, train_together
from attnlab.train.observer import Observer

__all__ = [
    "EngineName",
    "Evaluation",
    "History",
    "LayoutName",
    "Member",
    "Observer",
    "TrainConfig",
    "TrainResult",
    "Trained",
    "train_together",
]
