"""Small models with their losses and batches, trained in a layout and one by one beside it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from attnlab import models, seeds
from attnlab.tasks.sequences import SequenceTask
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.sequential import Sequential
from attnlab.train.layouts.simd import Simd, interpreted
from attnlab.train.layouts.vmap import vmapped
from tests.random_models import CLASSES

MEMBERS, BATCH, LENGTH, WORDS = 3, 4, 5, 5
NEVER = bool  # bool() is False
SMALL = {"vocab_size": WORDS, "max_length": 6, "d_model": 8, "num_heads": 2, "d_ff": 6}


LAYOUTS = {"vmap": vmapped, "lanes without a compiler": interpreted, "compiled lanes": Simd}


class Case(NamedTuple):
    """A member, its loss, one step's batch, and how many rows pass at once (1: all)."""

    make: Callable[[], nn.Module]
    loss: Callable[..., Any]
    batch: Callable[[torch.Generator], tuple[Any, ...]]
    rows: int = BATCH


def tokens(source, *shape):
    return torch.randint(WORDS, shape or (BATCH, LENGTH), generator=source)


def real(source):
    return torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (BATCH, 1), generator=source)


def next_token(model, row):
    return F.cross_entropy(model(row[:, :-1]).transpose(1, 2), row[:, 1:])


def of_class_with_padding(model, row, is_real, wanted):
    return F.cross_entropy(model(row, real=is_real), wanted)


def translation(model, source, source_real, given, wanted, target_real, times):
    logits = model(source, given, real=source_real, target_mask=target_real[:, None, None, :])
    losses = F.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=0, reduction="none")
    counts = target_real * times.unsqueeze(-1)
    return (losses * counts).sum() / counts.sum()


def translation_batch(source):
    target_real = real(source)
    wanted = tokens(source).clamp(min=1) * target_real
    return (
        tokens(source),
        real(source),
        tokens(source),
        wanted,
        target_real,
        tokens(source, BATCH) + 1,
    )


def closeness(model, x, target):
    return F.mse_loss(model(x).output, target)


def vectors(source):
    return tuple(
        torch.randn(BATCH, LENGTH, 3, generator=source, dtype=torch.float64) for _ in range(2)
    )


def classes_with_padding(source):
    return tokens(source), real(source), torch.randint(3, (BATCH,), generator=source)


TASK = SequenceTask("sort", letters=3, length=2)
ROWS = TASK.rows(TASK.all_prompts())


def counted(model, counts):
    losses = F.cross_entropy(
        model(ROWS[:, :-1]).transpose(1, 2), ROWS[:, 1:], reduction="none"
    ).mean(-1)
    return (losses * counts).sum() / counts.sum()


def counts(source):
    return (torch.bincount(torch.randint(len(ROWS), (64,), generator=source), minlength=len(ROWS)),)


def tiny(kind, **settings):
    """What makes a model of a kind from the state of the global generator."""
    model_class, config_class = CLASSES[kind]
    return lambda: model_class(config_class(**{**SMALL, **settings}))


def decoder(**settings):
    return tiny("decoder", **settings)


def sorter():
    return decoder(
        d_model=6, d_ff=6, positions="learned", projections="gated", rank=3, bias=False
    )()


CASES = {
    "sorter": Case(sorter, counted, counts, len(ROWS)),
    "rotary, gelu, rms, post, shared keys": Case(
        decoder(
            positions="rotary", activation="gelu", norm="rms", norm_place="post", num_kv_heads=1
        ),
        next_token,
        lambda g: (tokens(g),),
    ),
    "single head": Case(
        lambda: models.SingleHead(models.SingleHeadConfig(pos_dim=4, learned_positions=True)),
        closeness,
        vectors,
    ),
    "encoder-decoder": Case(tiny("encoder-decoder"), translation, translation_batch),
    "encoder with padding, concatenated": Case(
        tiny(
            "encoder",
            num_classes=3,
            positions="concatenated",
            final_norm=False,
            scale_embedding=True,
        ),
        of_class_with_padding,
        classes_with_padding,
    ),
    "alibi, strict, swiglu, no norm, untied, two layers": Case(
        decoder(
            positions="alibi",
            projections="strict",
            activation="swiglu",
            norm_place="none",
            tie_output=False,
            num_layers=2,
        ),
        next_token,
        lambda g: (tokens(g),),
    ),
}


class Tables(nn.Module):
    """Two tables and a layer: enough for a loss of every other operation."""

    def __init__(self):
        super().__init__()
        self.first = nn.Embedding(WORDS, 4)
        self.second = nn.Embedding(WORDS, 4)
        self.layer = nn.Linear(4, 3)

    def forward(self, row):
        return self.first.weight, self.layer(self.first(row).tanh() * self.second(row).sigmoid())


def of_many_operations(model, row, wanted, weights):
    table, logits = model(row)
    chosen = logits.log_softmax(-1).gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
    turned = torch.cat([logits, logits.abs() + 1], -1)[..., 1:-1].pow(3).clamp(-2.0, 2.0)
    joined = torch.stack(
        [table.index_select(0, row[0]), table[torch.tensor([1, 1, 0, 2, 1])]]
    ).amax(0)
    spread = (logits.square().mean(-1, keepdim=True) + 0.1).sqrt()
    several = F.pad(logits / spread, (1, 0)).logsumexp(-1) + torch.where(
        weights > 0, turned.sum(-1), turned.mean(-1)
    )
    bent = F.softplus(logits).erf().sum(-1) + F.binary_cross_entropy_with_logits(
        logits, torch.ones_like(logits)
    )
    weighted = F.cross_entropy(
        logits.flatten(0, 1), wanted.flatten(), weight=logits.new_tensor([1.0, 2.0, 0.5])
    )
    weighted = weighted + F.gelu(logits, approximate="tanh").sum()
    found = (bent + several - chosen * weights.exp()).mean() + joined.norm() + F.silu(table).sum()
    return found + weighted


def many_operations_batch(source):
    wanted = torch.randint(3, (BATCH, LENGTH), generator=source)
    return tokens(source), wanted, torch.randn(BATCH, LENGTH, generator=source, dtype=torch.float64)


def models_of(case, num=MEMBERS, dtype=torch.float64):
    """Make members, which differ in temperature where they have one."""
    models = []
    for seed in range(num):
        with seeds.isolated(seed, "model"):
            models.append(case.make().to(dtype))
    for index, model in enumerate(models):
        for part in model.modules():
            if hasattr(part, "temperature"):
                part.temperature.fill_(0.5 + 0.5 * index)
    return models


def configs_of(num=MEMBERS, **fields):
    return [TrainConfig(**fields, weight_decay=0.1 * i, clip=0.1 * (i + 1)) for i in range(num)]


def drawn(batch, steps, num=MEMBERS):
    """Draw the batches of some steps for each member."""
    data = []
    for seed in range(num):
        source = seeds.generator(seed, "data")
        batches = [batch(source) for _ in range(steps)]
        data.append(tuple(map(torch.stack, zip(*batches, strict=True))))
    return data


def part_of(data, start, end=None):
    """Take some steps of all members' batches."""
    return [tuple(tensor[start:end] for tensor in batches) for batches in data]


def first_batch(data):
    return tuple(tensor[0] for tensor in data[0])


def rates(steps, num=MEMBERS, peak=1e-3):
    return torch.linspace(0.1 * peak, peak, steps * num, dtype=torch.float64).view(steps, num)


def relative(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


def make_sequential(models, configs, loss, example):
    return Sequential(models, configs, loss, [0] * len(models))


def compared(make, case, steps, *, dtype=torch.float64, num=MEMBERS, data=None, **fields):
    """Train in a layout and alone; return both, and their relative distances."""
    data = drawn(case.batch, steps, num) if data is None else data
    configs = configs_of(num, **fields)
    layout, alone = (
        each(models_of(case, num, dtype), configs, case.loss, first_batch(data))
        for each in (make, make_sequential)
    )
    ours, theirs = (each.advance(data, rates(steps, num), 0, NEVER) for each in (layout, alone))
    found, wanted = layout.parameters(), alone.parameters()
    assert list(found) == [name for name, _ in models_of(case, 1)[0].named_parameters()]
    # The bias of keys moves all scores of a row alike, so its gradient is nothing but rounding.
    names = [name for name in found if not (make is Simd and name.endswith("key.bias"))]
    weights = [torch.cat([each[name].flatten(1) for name in names], 1) for each in (found, wanted)]
    return (
        layout,
        alone,
        [
            relative(ours.losses, theirs.losses),
            relative(ours.norms, theirs.norms),
            relative(*weights),
        ],
    )
