"""What a rule is: how one of PyTorch's operations becomes terms."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from attnlab.simd.program import Operand
from attnlab.simd.terms import Value

_Rule = TypeVar("_Rule", bound=Callable[..., Any])


class Rules(dict[Any, Callable[..., Any]]):
    """operation -> rule(program, *arguments): arguments are values or what is known; it returns
    values or tensors."""

    def of(self, *operations: Any) -> Callable[[_Rule], _Rule]:
        """Register the rule of some operations."""

        def register(rule: _Rule) -> _Rule:
            self.update(dict.fromkeys(operations, rule))
            return rule

        return register


def shape_of(x: Operand) -> tuple[int, ...]:
    """Return the shape of an operand."""
    return tuple(x.shape) if isinstance(x, Value | Tensor) else ()
