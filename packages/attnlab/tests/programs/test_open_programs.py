"""An open model computes its part, whatever the rest does."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.func import functional_call

from attnlab.core.stats import median_interval
from attnlab.errors import WrongUsage
from attnlab.programs import (
    Program,
    aggregate,
    compile_program,
    indices,
    library,
    select,
    selector_width,
    tokens,
)
from attnlab.programs.open_model import config_around, model_around, random_model
from attnlab.sites import Hook, installed

LONGEST = 4
SAME = select(tokens, tokens, "==")
PARTS = {
    "place": selector_width(
        select(tokens, tokens, "<") | (SAME & select(indices, indices, "<"))
    ).map(str),
    "mirrored": (library.length - 1 - indices).map(str),
    "before": aggregate(select(indices, indices - 1, "=="), tokens, "."),
}


class Stream(Hook):
    """Keeps the stream after the last layer."""

    def wants(self, site):
        return site.endswith("residual_after")

    def visit(self, site, value):
        self.last = value
        return value


def part_of(name):
    return compile_program(Program(PARTS[name], "abc", name), LONGEST, dtype=torch.float32)


def inputs(compiled, length):
    return compiled.ids(["".join(each) for each in product("abc", repeat=length)])


def stream(model, ids):
    hook = Stream()
    with torch.no_grad(), installed(model, hook):
        model(ids)
    return hook.last


def apart(part, model):
    """The largest difference between a part's block in a model, and the part alone."""
    found, width = 0.0, 1 + part.stream[-1][2]
    for length in range(1, LONGEST + 1):
        ids = inputs(part, length)
        alone, inside = stream(part.model, ids), stream(model, ids)
        difference = inside[..., :width] - alone[..., :width]
        found = max(found, float(difference.abs().max()))
    return found


def scrambled(opened):
    """The model with every free entry drawn anew, ten times as large."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in opened.model.named_parameters():
            noise = 10 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(torch.where(opened.held[name], parameter, noise))
    return opened


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("width", [0, 6])
def test_a_part_computes_in_a_larger_model_what_it_computes_alone(name, width):
    part = part_of(name)
    config = config_around([part], "abc", layers=2)
    config = replace(config, d_model=config.d_model + width * config.num_heads)
    opened = scrambled(model_around(part, config, seed=0))
    assert apart(part, opened.model) < 1e-5
    assert opened.moved() == {}


def roll(weight):
    weight.copy_(weight.roll(1, 0))


def write_into_the_block(weight):
    weight[0, -1] = 0.5


@pytest.mark.parametrize(
    ("name", "layer", "change", "moved"),
    [("place", 0, roll, None), ("before", 1, write_into_the_block, 1)],
)
def test_a_head_that_is_wired_or_writes_wrongly_is_noticed(name, layer, change, moved):
    part = part_of(name)
    opened = model_around(part, config_around([part], "abc"), seed=0)
    weight = f"layers.{layer}.attention.output.weight"
    with torch.no_grad():
        change(opened.model.get_parameter(weight))
    assert apart(part, opened.model) > 1e-3
    assert opened.moved().keys() == {weight}
    assert moved in (None, opened.moved()[weight])


def test_the_free_entries_are_those_of_the_model_that_is_drawn_alone():
    part = part_of("mirrored")
    config = config_around([part], "abc")
    opened = model_around(part, config, seed=3)
    drawn = dict(random_model(config, 3).named_parameters())
    for name, parameter in opened.model.named_parameters():
        free = ~opened.held[name]
        assert torch.equal(parameter[free], drawn[name][free])


def trained(opened, *, weight_decay=0.0, is_frozen=True):
    """Take five steps towards the input itself."""
    model, ids = opened.model, inputs(opened.part, LONGEST)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=weight_decay)
    for _ in range(5):
        parameters = opened.frozen(model) if is_frozen else dict(model.named_parameters())
        logits = functional_call(model, parameters, (ids,))[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return opened


def test_training_leaves_what_is_frozen_and_moves_the_rest():
    part = part_of("place")
    opened = model_around(part, config_around([part], "abc"), seed=0)
    before = {name: each.detach().clone() for name, each in opened.model.named_parameters()}
    assert trained(opened).moved() == {}
    moved = [name for name, each in opened.model.named_parameters() if (each != before[name]).any()]
    assert "layers.0.attention.query.weight" in moved
    assert "head.weight" in moved


@pytest.mark.parametrize("how", [{"weight_decay": 0.1}, {"is_frozen": False}])
def test_a_frozen_entry_that_moves_is_counted(how):
    part = part_of("place")
    opened = trained(model_around(part, config_around([part], "abc"), seed=0), **how)
    assert sum(opened.moved().values()) > 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"norm_place": "pre"}, "the part is for norm_place none; got pre."),
        ({"max_length": 9}, "the part is for max_length 5; got 9."),
        ({"num_layers": 1}, "the part needs num_layers 2; got 1."),
        ({"d_ff": 3}, "the part needs inner_width 16; got 3."),
        ({"d_model": 12}, "the part needs d_model 17; got 12."),
    ],
)
def test_a_config_that_the_part_does_not_fit_is_refused(change, words):
    part = part_of("place")
    with pytest.raises(WrongUsage) as error:
        model_around(part, replace(config_around([part], "abc"), **change), seed=0)
    assert str(error.value) == words


def test_the_interval_of_a_median_lies_between_the_6th_and_the_15th_of_20():
    assert median_interval(list(range(1, 21)))[1:] == (6, 15)  # 95.9 %; the 7th and 14th: 88.5 %
