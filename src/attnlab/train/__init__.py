"""Train: fit a model, or many at once, to a task, and keep what it takes to go on."""

from attnlab.train.loop import Judgement, Observer, TrainConfig, Trained, train
from attnlab.train.population import train_population

__all__ = ["Judgement", "Observer", "TrainConfig", "Trained", "train", "train_population"]
