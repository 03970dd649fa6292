"""Train: fit a model to a task, and keep what it takes to go on."""

from attnlab.train.loop import Judgement, Observer, TrainConfig, Trained, train

__all__ = ["Judgement", "Observer", "TrainConfig", "Trained", "train"]
