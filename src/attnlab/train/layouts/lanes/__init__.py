"""Lanes: our own compiler for populations of tiny models."""

from attnlab.train.layouts.lanes.lanes import Lanes

__all__ = ["Lanes"]
