"""A summary in place of the weights, for recordings: `record(model, patterns, reduce=Summarise())`."""

from dataclasses import dataclass

from torch import Tensor

from attnlab.look.summaries.blocks import summary_of_weights
from attnlab.look.summaries.question import ask_about
from attnlab.look.summaries.summarise import answer
from attnlab.look.summaries.summary import Summary
from attnlab.shapes import require_integer
from attnlab.sites import AttentionCall

__all__ = ["Summarise"]


@dataclass(frozen=True)
class Summarise:
    """Make a `Summary` of an attention, (batch, head, …), and keep neither its queries and keys nor its weights.

    Args:
        tiles: the pooled maps have at most so many cells along each axis.
        top: how many of the largest weights are named for each query.
    """

    tiles: int = 256
    top: int = 8

    def __post_init__(self) -> None:
        require_integer("tiles", self.tiles)
        require_integer("top", self.top)

    def __call__(self, call: AttentionCall) -> Summary:
        """Summarise an attention that is about to be computed."""
        found = answer(ask_about(call), tiles=self.tiles, top=self.top)
        axes, heads = len(found.entropy.shape) - 1, call.query.shape[:-2]
        shaped = [part.reshape(*heads, *part.shape[axes:]) for part in found[:-1]]
        return Summary._make([*shaped, found.cells])

    reduce = __call__

    def of_weights(self, weights: Tensor) -> Summary:
        """Summarise weights that are there, (batch, head, query, key), such as edited ones."""
        return summary_of_weights(weights, tiles=self.tiles, top=self.top)
