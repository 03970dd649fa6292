"""A summary in place of the weights, for recordings: `record(model, patterns,
reduce=Summarize())`."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor

from attnlab.look.summaries import native
from attnlab.look.summaries.question import Question, ask_about
from attnlab.look.summaries.row_blocks import summary_of_weights
from attnlab.look.summaries.summarize import answer
from attnlab.look.summaries.summary import Summary
from attnlab.parts.attend import goes_native
from attnlab.parts.masks import Mask
from attnlab.shapes import require_integer
from attnlab.sites import AttentionCall


@dataclass(frozen=True)
class Summarize:
    """Record a `Summary` of an attention, (batch, head, …), instead of its queries, keys and
    weights.

    Args:
        tiles: the most cells of the pooled maps along each axis.
        top: how many of the largest weights are named for each query.
    """

    tiles: int = 256
    top: int = 8

    def __post_init__(self) -> None:
        require_integer("tiles", self.tiles)
        require_integer("top", self.top)

    def __call__(self, call: AttentionCall) -> Summary:
        """Summarize an attention call."""
        question = ask_about(call)
        found = self._with_output(call, question)
        if found is None:
            found = answer(question, tiles=self.tiles, top=self.top)
        axes, heads = len(found.entropy.shape) - 1, call.query.shape[:-2]
        shaped = [part.reshape(*heads, *part.shape[axes:]) for part in found[:-1]]
        return Summary._make([*shaped, found.cells])

    reduce = __call__

    def _with_output(self, call: AttentionCall, question: Question) -> Summary | None:
        """Summarize in the pass that computes the output as `attend` would; None without such a
        pass."""
        place, mask = call.place, cast(Mask, call.mask)
        if place is None or place.output is not None:
            return None
        if not goes_native(call.query, call.key, call.value, mask, scale=call.scale):
            return None
        if native.reason_against(question, self.top, is_finite=True) is not None:
            return None
        is_shared = len(question.shape) > call.query.dim() - 2
        value = call.value.unsqueeze(-3) if is_shared else call.value
        found, output = native.summary_of(question, tiles=self.tiles, top=self.top, value=value)
        assert output is not None
        place.output = output.reshape(*call.query.shape[:-1], value.shape[-1])
        return found

    def of_weights(self, weights: Tensor) -> Summary:
        """Summarize given weights, (batch, head, query, key), such as edited ones."""
        return summary_of_weights(weights, tiles=self.tiles, top=self.top)
