"""Families: the sites in the blocks of one type of model, named by a user where tracing cannot find
them.

    register_family(Family("granite", attention="self_attn.o_proj", down="mlp.down_proj",
    feed_forward="mlp"))

They are seldom needed: tracing finds most sites from the numbers of one pass. It leaves out those
that it cannot verify, such as an output that the model scales before it is added to the stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.structure import (
    AttentionStructure,
    BlockStructure,
    ModelStructure,
    ModuleCall,
)
from attnlab.sites import Hook, installed

__all__ = ["Family", "family_of", "register_family", "require_visited"]


@dataclass(frozen=True)
class Family:
    """Paths of modules within a block; None leaves it to tracing.

    Args:
        model_type: as in `config.json`.
        attention, cross_attention: the modules whose outputs are `attention.output` and
            `cross_attention.output`.
        down: the projection of the hidden layer back to d_model; its input is
            `feed_forward.hidden`.
        feed_forward: the module whose output is `feed_forward.output`.
    """

    model_type: str
    attention: str | None = None
    cross_attention: str | None = None
    down: str | None = None
    feed_forward: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.model_type, str) and self.model_type):
            raise WrongUsage(
                "a family is named by the model_type of config.json, such as 'gpt2'; got "
                f"{self.model_type!r}."
            )

    def corrected(self, structure: ModelStructure, foreign: nn.Module) -> ModelStructure:
        """Return a traced structure with the family's modules.

        Raises:
            WrongUsage: a block has no such module, or no block has any.
        """
        stacks = [
            each._replace(blocks=tuple(self._block(block, foreign) for block in each.blocks))
            for each in structure.stacks
        ]
        if not any(block.place is not None for each in stacks for block in each.blocks):
            raise WrongUsage(
                f"family {self.model_type!r}: tracing found no blocks in this model to name "
                "paths in."
            )
        return ModelStructure(tuple(stacks))

    @property
    def sites(self) -> list[str]:
        """The ends of the names of the sites that it defines."""
        named = {
            ".attention.output": self.attention,
            ".cross_attention.output": self.cross_attention,
            ".feed_forward.hidden": self.down,
            ".feed_forward.output": self.feed_forward,
        }
        return [site for site, path in named.items() if path is not None]

    def _block(self, block: BlockStructure, foreign: nn.Module) -> BlockStructure:
        if block.place is None:
            return block
        names = {
            name for name, _ in foreign.get_submodule(block.place.path).named_modules() if name
        }

        def place(path: str) -> ModuleCall:
            assert block.place is not None
            if path not in names:
                raise WrongUsage(
                    f"family {self.model_type!r}: the block {block.place.path} has no module "
                    f"{path!r}; {did_you_mean(path, names)}"
                )
            return ModuleCall(f"{block.place.path}.{path}", block.place.number)

        def attention(each: AttentionStructure) -> AttentionStructure:
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
    """Return the family registered for a model's type, or None."""
    return _FAMILIES.get(str(getattr(getattr(foreign, "config", None), "model_type", "")))


@torch.no_grad()
def require_visited(model: Pretrained, family: Family, inputs: Mapping[str, Any]) -> None:
    """Raise unless one pass visits every site of a family exactly once."""
    counter = _Counter(tuple(family.sites))
    with installed(model, counter):
        model(**inputs)
    sites = [
        f"{path}.{own}"
        for path, point in model.named_modules()
        for own in getattr(point, "sites", ())
    ]
    for site in sites:
        if site.endswith(counter.ends) and counter.found.get(site, 0) != 1:
            raise WrongUsage(
                f"family {family.model_type!r}: {site} is visited {counter.found.get(site, 0)} "
                "times in one pass, not once; name a module that each block calls once."
            )


class _Counter(Hook):
    """Counts visits of sites."""

    changes = False

    def __init__(self, ends: tuple[str, ...]) -> None:
        self.ends = ends
        self.found: dict[str, int] = {}

    def wants(self, site: str) -> bool:
        return f".{site}".endswith(self.ends)

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.found[site] = self.found.get(site, 0) + 1
        return value
