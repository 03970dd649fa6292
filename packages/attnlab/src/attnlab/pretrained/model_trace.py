"""The trace of one pass of a foreign model: the calls of its modules, its attentions, and what was
met that cannot be shown."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from attnlab.pretrained.origins import Marks


class ModuleCall(NamedTuple):
    """A call of a module in one pass: its path in the foreign model, and how many calls of it came
    before."""

    path: str
    number: int = 0


@dataclass
class TracedCall:
    """One call of a module: path, number (how often it was called before), its input and output.

    gives: "tensor", "one" (a tuple of one), or "other" · projects: the module multiplies with a
    matrix of its own.
    """

    path: str
    number: int
    input: Tensor | None
    begun: int
    ended: int = 0
    output: Tensor | None = None
    gives: str = "other"
    projects: bool = False

    @property
    def place(self) -> ModuleCall:
        """The module, and which of its calls."""
        return ModuleCall(self.path, self.number)


@dataclass
class TracedAttention:
    """One attention in the trace.

    backend: which one found it · path: the module that calls it · number: that call's · nth: its
    number among what this backend finds in that call, other softmaxes included · heads (batch,
    head, query, width): their output, None where it was not seen · is_cross: keys come from another
    tensor than queries, where that was seen · is_length_first: the calling module puts the length
    before the batch · shows_product: the weights are changed between the softmax and the values ·
    query_from, key_from: what queries and keys were made from, as `Origins` marks it.
    """

    backend: str
    path: str
    number: int
    nth: int
    begun: int
    num_heads: int
    num_kv_heads: int
    num_queries: int
    num_keys: int
    batch: int = 1
    heads: Tensor | None = None
    is_cross: bool = False
    is_length_first: bool = False
    shows_product: bool = False
    query_from: Marks = frozenset()
    key_from: Marks = frozenset()

    @property
    def place(self) -> ModuleCall:
        """The module that calls it, and in which of its calls."""
        return ModuleCall(self.path, self.number)


@dataclass
class ModelTrace:
    """What happened in one pass, in order: calls of modules, attentions, and the model's output.

    set_aside: softmaxes that multiply something and are no attention over tokens: the module, why ·
    unread: what was met and cannot be shown, in words · is_length_first: inputs are (length, batch,
    …), as attention that joins batch and heads has shown.
    """

    calls: list[TracedCall] = field(default_factory=list)
    attentions: list[TracedAttention] = field(default_factory=list)
    output: Any = None
    set_aside: list[tuple[str, str]] = field(default_factory=list)
    unread: dict[str, None] = field(default_factory=dict)
    is_length_first: bool = False

    @property
    def why_set_aside(self) -> str:
        """A sentence on softmaxes that are no attention or cannot be shown, to end a message."""
        if not self.set_aside and self.unread:
            return f" It computes {'; and '.join(self.unread)}, which cannot be shown."
        if not self.set_aside:
            return ""
        path, reason = self.set_aside[0]
        return f" The softmax in {path or 'the model'} {reason}."
