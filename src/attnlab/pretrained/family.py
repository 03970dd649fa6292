"""Families: where sites are in the blocks of one kind of model, said by a person where a survey cannot tell.

    register_family(Family("granite", attention="self_attn.o_proj", down="mlp.down_proj", feed_forward="mlp"))

Needed seldom: a survey reads most of it off the numbers of one pass. It leaves out what it cannot verify, such as
an output that the model multiplies by a factor before it is added to the stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.plan import AttentionPlan, BlockPlan, Place, Plan
from attnlab.sites import Instrument, installed

__all__ = ["Family", "family_of", "register_family", "require_met"]


@dataclass(frozen=True)
class Family:
    """Paths of modules within a block; None leaves it to the survey.

    Args:
        model_type: as in `config.json`.
        attention, cross_attention: what gives `attention.output` and `cross_attention.output`.
        down: what takes the hidden layer back to d_model; what it is given is `feed_forward.hidden`.
        feed_forward: what gives `feed_forward.output`.
    """

    model_type: str
    attention: str | None = None
    cross_attention: str | None = None
    down: str | None = None
    feed_forward: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.model_type, str) and self.model_type):
            raise WrongUsage(
                f"a family goes by the model_type of config.json, such as 'gpt2'; got {self.model_type!r}."
            )

    def corrected(self, plan: Plan, foreign: nn.Module) -> Plan:
        """Put what the family says in the place of what the survey found.

        Raises:
            WrongUsage: a block has no such module, or no block has any.
        """
        stacks = [
            each._replace(blocks=tuple(self._block(block, foreign) for block in each.blocks)) for each in plan.stacks
        ]
        if not any(block.place is not None for each in stacks for block in each.blocks):
            raise WrongUsage(f"family {self.model_type!r}: a survey found no blocks in this model to name paths in.")
        return Plan(tuple(stacks))

    @property
    def sites(self) -> list[str]:
        """The ends of the sites' names that it speaks of."""
        named = {
            ".attention.output": self.attention,
            ".cross_attention.output": self.cross_attention,
            ".feed_forward.hidden": self.down,
            ".feed_forward.output": self.feed_forward,
        }
        return [site for site, path in named.items() if path is not None]

    def _block(self, block: BlockPlan, foreign: nn.Module) -> BlockPlan:
        if block.place is None:
            return block
        names = {name for name, _ in foreign.get_submodule(block.place.path).named_modules() if name}

        def place(path: str) -> Place:
            assert block.place is not None
            if path not in names:
                raise WrongUsage(
                    f"family {self.model_type!r}: the block {block.place.path} has no module {path!r}; "
                    f"{did_you_mean(path, names)}"
                )
            return Place(f"{block.place.path}.{path}", block.place.number)

        def attention(each: AttentionPlan) -> AttentionPlan:
            path = self.cross_attention if each.name.startswith("cross") else self.attention
            return each if path is None else each._replace(adds=place(path))

        found = block._replace(attentions=tuple(attention(each) for each in block.attentions))
        found = found if self.down is None else found._replace(down=place(self.down))
        return found if self.feed_forward is None else found._replace(adds=place(self.feed_forward))


_FAMILIES: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Use a family for all models of its type that are opened from now on, in this process."""
    if not isinstance(family, Family):
        raise WrongUsage(f"a family is a Family(model_type, …); got a {type(family).__name__}.")
    _FAMILIES[family.model_type] = family


def family_of(foreign: nn.Module) -> Family | None:
    """Return the family that was registered for a model's type, or None."""
    return _FAMILIES.get(str(getattr(getattr(foreign, "config", None), "model_type", "")))


@torch.no_grad()
def require_met(model: Pretrained, family: Family, inputs: Mapping[str, Any]) -> None:
    """Raise unless every site that a family speaks of is passed once in one pass."""
    counter = _Counter(tuple(family.sites))
    with installed(model, counter):
        model(**inputs)
    sites = [f"{path}.{own}" for path, door in model.named_modules() for own in getattr(door, "sites", ())]
    for site in sites:
        if site.endswith(counter.ends) and counter.found.get(site, 0) != 1:
            raise WrongUsage(
                f"family {family.model_type!r}: {site} is passed {counter.found.get(site, 0)} times in one pass, not "
                "once; name a module that each block calls once."
            )


class _Counter(Instrument):
    """Counts what passes."""

    changes = False

    def __init__(self, ends: tuple[str, ...]) -> None:
        self.ends = ends
        self.found: dict[str, int] = {}

    def wants(self, site: str) -> bool:
        return f".{site}".endswith(self.ends)

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.found[site] = self.found.get(site, 0) + 1
        return value
