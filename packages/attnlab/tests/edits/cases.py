"""Random edits of random models: where they stand, how they are said, and NumPy beside them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.edits import edit
from attnlab.errors import WrongUsage
from attnlab.sites import site_names
from tests.random_models import random_model

from .oracle import Oracle, unchanged

WEIGHTS = "layers.0.attention.weights"
VOCABULARY = [f"t{number}" for number in range(11)]
KINDS = ("decoder", "decoder", "encoder-decoder", "encoder", "single head")


@dataclass
class Case:
    """A model, an input, and the random numbers for all the rest."""

    seed: int
    kind: str = ""
    rng: np.random.Generator = field(init=False)

    def __post_init__(self):
        self.rng = np.random.default_rng([20260505, self.seed])
        self.kind = self.kind or KINDS[self.seed % 5]
        number = int(self.rng.integers(0, 12))
        self.model = random_model(self.kind, number)
        self.batch, self.length = int(self.rng.integers(1, 4)), int(self.rng.integers(3, 7))
        self.source_length = int(self.rng.integers(2, 7))
        self.seen: np.ndarray | None = None
        shape, source = (self.batch, self.length), (self.batch, self.source_length)
        if self.kind == "single head":
            self.inputs = (self.rng.normal(size=(*shape, 3)),)
        else:
            shapes = (source, shape) if self.kind == "encoder-decoder" else (shape,)
            self.inputs = tuple(self.rng.integers(0, 11, size=shape) for shape in shapes)
        if self.rng.random() < 0.4:
            self.seen = self.rng.random(self.inputs[0].shape[:2]) < 0.7
            if self.kind == "decoder":
                self.seen = self.seen[:, None, None]

    @property
    def real(self):
        """(row, position): which positions of the input, of the source where there are two."""
        return self.seen[:, 0, 0] if self.kind == "decoder" and self.seen is not None else self.seen

    @property
    def num_heads(self):
        return 1 if self.kind == "single head" else 4

    def run(self, *edits, certify=False, **options):
        """The output under edits, and the certificate."""
        given = tuple(torch.from_numpy(each) for each in self.inputs)
        keywords = {}
        if self.seen is not None:
            keywords["mask" if self.kind == "decoder" else "real"] = torch.from_numpy(self.seen)
        certificate = None
        if edits:
            with edit(self.model, *edits, certify=certify, **options) as certificate:
                output = self.model(*given, **keywords)
        else:
            output = self.model(*given, **keywords)
        return (output.output if self.kind == "single head" else output), certificate

    def expected(self, change=unchanged):
        return Oracle(self.model)(*self.inputs, seen=self.seen, change=change)

    def parts(self):
        """Some attentions: how an edit says it, and their paths with a dot behind, or none."""
        weights = [name for name in site_names(self.model) if name.endswith("weights")]
        paths = [name.removesuffix("weights") for name in weights]
        if self.kind == "single head" or self.rng.random() < 0.2:
            return {}, paths
        if self.kind == "encoder-decoder":
            path = paths[self.rng.integers(len(paths))]
            return {"site": path.removesuffix(".")}, [path]
        layer = int(self.rng.integers(2))
        return {"layer": self.said([layer], 2)}, [f"layers.{layer}.attention."]

    def some(self, size, *, chance_of_all=0.3):
        """Some numbers below a size, at least one."""
        if self.rng.random() < chance_of_all:
            return list(range(size))
        return sorted(self.rng.permutation(size)[: self.rng.integers(1, size + 1)].tolist())

    def said(self, chosen, size, *, is_position=False):
        """One of the ways of saying these numbers."""
        if len(chosen) == size and self.rng.random() < 0.5:
            return None if is_position else "all"
        turned = [each - size if self.rng.random() < 0.5 else each for each in chosen]
        ways: list[Any] = [chosen, turned]
        if len(chosen) == 1:
            ways += [chosen[0], chosen[0] - size, torch.tensor(chosen[0]), np.int64(chosen[0])]
        if chosen == list(range(chosen[0], chosen[-1] + 1)):
            ways += [
                f"{chosen[0]}..{chosen[-1]}",
                f"{chosen[0] - size}..{chosen[-1] - size}",
                range(chosen[0], chosen[-1] + 1),
            ]
            if chosen[-1] == size - 1:
                ways.append(f"{chosen[0]}..")
            if chosen[0] == 0:
                ways.append(f"..{chosen[-1]}")
        return ways[self.rng.integers(len(ways))]

    def lengths(self, site):
        """How many queries and keys there are at a site."""
        if self.kind != "encoder-decoder":
            return self.length, self.length
        own = self.source_length if site.startswith("encoder") else self.length
        return own, self.source_length if "cross" in site else own


def refused(message, model, edits, *inputs, run=None, **options):
    """Edit a model and call it, or run what is given, which must end in a refusal."""
    edits = edits if isinstance(edits, tuple) else (edits,)
    run = run or (model if inputs else lambda: None)
    with pytest.raises(WrongUsage, match=message), edit(model, *edits, **options):
        run(*inputs)


def changed(output, plain):
    """Which (row, position) differ."""
    return (output != plain).any(-1)
