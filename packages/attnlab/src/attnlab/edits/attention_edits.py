"""Edits of an attention's mask, of its scores, and of its weights after the softmax.

All three are (batch, head, query, key). After an edit of the mask or the scores the softmax
follows, so rows still sum to one.

A boolean mask stays boolean. In a mask that is added to the scores, as ALiBi's is, blocked means
-inf, and newly allowed keys get 0; the fused kernel goes on running. A blocked edge has no score to
change and stays blocked. A query without any allowed key keeps its zero weights; the allowed keys
are those of the mask and the scores after the earlier edits.
"""

import torch
from torch import Tensor

from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext
from attnlab.edits.sources import Recorded, finite_tensor, recorded_value
from attnlab.edits.targets import atoms_of
from attnlab.errors import WrongUsage, is_integer
from attnlab.seeds import stream_seed
from attnlab.shapes import require_integer

__all__ = [
    "AddToScores", "CutEdge", "CutTokens", "FreezePattern", "RedirectToFirst", "RelaxMask",
    "ScaleScores", "SetMask", "SetPattern", "ShiftMask", "ShufflePattern", "Temperature",
    "UniformPattern",
]  # fmt: skip

_EDGES = ("head", "query", "key", "row", "step")


class CutEdge(Edit):
    """Keep the queries from attending to the keys; lists cut every pair.

    renormalize: the other keys of each row share its weight, as if the key had been masked. With
    False the weight is lost, and the row sums to less than one.
    """

    renormalize: bool = True

    NARROWS = _EDGES
    NOTHING = "none of these queries attends to any of these keys. Are query= and key= swapped?"

    @property
    def suffix(self) -> str:
        """The mask, or with renormalize=False the weights."""
        return "mask" if self.renormalize else "weights"

    def check(self) -> None:
        """Require an edge to cut."""
        if self.query is None and self.key is None:
            raise WrongUsage(f"{type(self).__name__} needs query= or key= or both.")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return a mask without the edges, or weights of zero."""
        if self.renormalize:
            return _with_allowed(values, torch.zeros_like(values, dtype=torch.bool))
        return torch.zeros_like(values)


class CutTokens(CutEdge):
    """Cut every edge from the tokens of some names to the tokens of some names.

    query and key: names, or sets of them.
    """

    def check(self) -> None:
        """Require names on both sides."""
        for name in ("query", "key"):
            target = getattr(self, name)
            atoms = atoms_of(name, target)
            if not atoms or not all(isinstance(atom, str) for atom in atoms):
                raise WrongUsage(
                    "CutTokens takes names of tokens for query and for key; got "
                    f"{name}={target!r}. CutEdge takes one side alone."
                )
        super().check()


class SetMask(Edit):
    """Replace the mask.

    mask: "causal", "all" (every key is allowed, padding too), or a boolean tensor that fits (batch,
    head, query, key), True = may attend; positions are counted from the start of the text.
    """

    mask: Tensor | str

    AT = "mask"
    NARROWS = _EDGES
    FITS = "mask"

    def check(self) -> None:
        """Require a known word or a boolean tensor."""
        if isinstance(self.mask, str):
            if self.mask not in ("causal", "all"):
                raise WrongUsage(
                    f"mask= is 'causal', 'all' or a boolean tensor; got {self.mask!r}."
                )
            return
        tensor = finite_tensor("mask", self.mask)
        if tensor.dtype != torch.bool:
            raise WrongUsage(
                f"mask= must be boolean; got {tensor.dtype}. Use AddToScores for biases."
            )
        object.__setattr__(self, "mask", tensor)

    @property
    def tells_apart(self) -> set[str]:
        """The axes along which the targets or the tensor differ."""
        axes = super().tells_apart
        if isinstance(self.mask, Tensor):
            sizes = reversed(self.mask.shape[:-2])
            for axis, size in zip(("head", "batch"), sizes, strict=False):
                if size > 1:
                    axes.add(axis)
        return axes

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the mask."""
        allowed = (context.keys <= context.queries[:, None])[None, None]
        if isinstance(self.mask, Tensor):
            allowed = self.fitted(self.mask.to(values.device), context)
        elif self.mask == "all":
            allowed = torch.ones_like(allowed)
        return _with_allowed(values, allowed)


class ShiftMask(Edit):
    """Shift the mask along the keys: `by=1` lets a causal query see one token too many.

    Keys shifted in at the start are masked as the first key was; those at the end are blocked.
    """

    by: int = 1

    AT = "mask"

    def check(self) -> None:
        """Require an integer distance."""
        if not is_integer(self.by) or abs(self.by) >= 2**62:
            raise WrongUsage(f"by= is a number of keys, such as 1 or -1; got {self.by!r:.40}.")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the moved mask."""
        source = torch.arange(values.shape[-1], device=values.device) - self.by
        moved = _allowed(values).index_select(-1, source.clamp(0, max(values.shape[-1] - 1, 0)))
        return _with_allowed(values, moved & (source < values.shape[-1]))


class RelaxMask(Edit):
    """Let the queries attend to the keys whatever the mask says; without targets, all to all."""

    AT = "mask"
    NARROWS = _EDGES
    NOTHING = "all of these queries may attend to all of these keys already."

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return a mask that allows every edge."""
        return _with_allowed(values, torch.ones_like(values, dtype=torch.bool))


def _allowed(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask != float("-inf")


def _with_allowed(mask: Tensor, allowed: Tensor) -> Tensor:
    """Return a mask of the same kind that allows these edges."""
    allowed = allowed.expand(mask.shape)
    if mask.dtype == torch.bool:
        return allowed
    return torch.where(allowed, torch.where(_allowed(mask), mask, 0.0), float("-inf"))


class _ScoreEdit(Edit):
    AT = "scores"
    NOTHING = (
        "the mask blocks all of these edges, and a blocked edge has no score. RelaxMask opens "
        "edges; are query= and key= swapped?"
    )

    def has_changed(self, before: Tensor, after: Tensor, chosen: Tensor | None) -> bool:
        """Was any edge open? A score that stays the same counts, too."""
        is_open = before != float("-inf")
        return bool((is_open if chosen is None else is_open & chosen).any())


class ScaleScores(_ScoreEdit):
    """Multiply scores by a factor: sharper above 1, flatter below, reversed below 0."""

    factor: float

    NARROWS = _EDGES

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the scaled scores."""
        return _where_open(values, values * self.factor)


class Temperature(_ScoreEdit):
    """Divide the scores of whole rows by a temperature before the softmax."""

    temperature: float

    def check(self) -> None:
        """Require a temperature above 0."""
        if self.temperature <= 0:
            raise WrongUsage(f"temperature= must be above 0; got {self.temperature!r}.")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the divided scores."""
        return _where_open(values, values / self.temperature)


class AddToScores(_ScoreEdit):
    """Add a number, or a tensor that fits (batch, head, query, key), to scores; -inf blocks."""

    amount: float | Tensor

    NARROWS = _EDGES
    FITS = "amount"

    def check(self) -> None:
        """Require a finite amount, or -inf."""
        tensor = finite_tensor("amount", self.amount, may_block=True)
        object.__setattr__(self, "amount", float(tensor) if tensor.dim() == 0 else tensor)

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the sums."""
        amount = self.amount
        if isinstance(amount, Tensor):
            amount = self.fitted(amount.to(values), context)
        return _where_open(values, values + amount)


def _where_open(values: Tensor, changed: Tensor) -> Tensor:
    return torch.where(values == float("-inf"), values, changed)


class SetPattern(Edit):
    """Replace the weights by a tensor that fits (batch, head, query, key).

    Its rows should sum to one; the certificate lists those that do not.
    """

    pattern: Tensor

    AT = "weights"
    NARROWS = _EDGES
    FITS = "pattern"

    def check(self) -> None:
        """Require weights of 0 or more."""
        if self.pattern.dim() < 1 or bool((self.pattern < 0).any()):
            raise WrongUsage(f"pattern= holds weights of 0 or more; got {self.pattern!r:.120}.")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the pattern."""
        return self.fitted(self.pattern.to(values), context).expand_as(values)


class FreezePattern(Edit):
    """Use the weights recorded on another input; the values still come from this one.

    recording: of one input, which serves all rows, or of as many as there are rows.
    """

    recording: Recorded

    AT = "weights"

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the recorded pattern."""
        return recorded_value(context, self.recording, repr(self)).expand_as(values)


class UniformPattern(Edit):
    """Let each query attend equally to all keys that it may attend to."""

    AT = "weights"

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return equal weights."""
        seen = context.seen.to(values.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)


class ShufflePattern(Edit):
    """Shuffle each query's weights among the keys it may attend to.

    seed: the same seed, site, row, head and position give the same order, with a key/value cache or
    without.
    """

    seed: int = 0

    AT = "weights"

    def check(self) -> None:
        """Require a seed of 0 or more."""
        require_integer("seed", self.seed, low=0)

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the shuffled weights."""
        seen = context.seen
        by_chance = _noise(context, stream_seed(self.seed, "shuffle", context.site))
        last = torch.iinfo(torch.int64).max
        places = torch.where(seen, by_chance, last).argsort(dim=-1, stable=True)
        in_order = torch.where(seen, context.keys, last).argsort(dim=-1, stable=True)
        return torch.zeros_like(values).scatter(-1, places, values.gather(-1, in_order))


class RedirectToFirst(Edit):
    """Let each query attend only to the first key that it may attend to."""

    AT = "weights"

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return rows with a single one."""
        seen = context.seen
        return ((seen.cumsum(-1) == 1) & seen).to(values.dtype)


def _noise(context: EditContext, seed: int) -> Tensor:
    """Return a pseudo-random number for each row, head, query and key (SplitMix64, Steele 2014)."""
    noise = torch.full((), seed, dtype=torch.int64, device=context.keys.device)
    for place, numbers in enumerate((context.rows, context.heads, context.queries, context.keys)):
        noise = noise + numbers.reshape(-1, *(1,) * (3 - place)) + 1
        noise = noise * -7046029254386353131  # 0x9E3779B97F4A7C15
        for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
            noise = (noise ^ _shifted(noise, shift)) * factor
        noise = noise ^ _shifted(noise, 31)
    return noise


def _shifted(number: Tensor, by: int) -> Tensor:
    """Shift right, with zeros coming in at the top."""
    return (number >> by) & ((1 << (64 - by)) - 1)
