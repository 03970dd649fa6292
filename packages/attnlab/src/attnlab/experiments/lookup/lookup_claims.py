"""The numbers of a run of look-up, and the claims that they bear out."""

import math
from typing import Any

import numpy as np
import torch

from attnlab.core.stats import mean_interval, share_interval
from attnlab.display import plural
from attnlab.experiments.claims import Claim
from attnlab.experiments.lookup.config import LookupConfig
from attnlab.experiments.lookup.fixed_table import FixedTable, TableModel, is_right
from attnlab.experiments.lookup.recall import Recalled
from attnlab.experiments.words import Numbers
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.parameters import count_from_model
from attnlab.tasks import lookup as task

# Measured over 20 seeds: at most 3e-06 and 8e-15. An encoder with positions moves the logits by 0.8
# or more.
_ROUNDING32, _ROUNDING64 = 1e-5, 1e-11
_SEEN = 1e-3  # a difference between logits beyond rounding
_NEAR_CHANCE = 0.03
_LEARNED = 0.99


def evaluate_claims(
    config: LookupConfig, main: EncoderDecoder, table: FixedTable | None, readers: list[Recalled]
) -> tuple[list[Claim], Numbers]:
    """Make the claims; return them with their numbers, which the report tells too."""
    numbers: Numbers = {
        "config": config,
        "parameters": sum(count_from_model(main).values()),
        "table": None,
        "readers": [],
    }
    claims = list[Claim]()
    if table is not None:
        numbers["table"] = _table_numbers(config, table)
        numbers["control"] = _scrambled(table.controls)
        claims += _table_claims(numbers["table"], numbers["control"])
    if readers:
        numbers |= _reader_numbers(config, readers)
        claims += [_reader_claim(reader, numbers) for reader in numbers["readers"]]
    return claims, numbers


def _table_claims(table: Numbers, control: Numbers) -> list[Claim]:
    """Claim that every model decodes right, in any order, and that the control sees the order."""
    number = table["number"]
    perfect = f"perfect in {table['perfect']} of {number} {plural(number, 'seed')}"
    claims = [
        Claim(
            "decoded_right",
            "every test sample is decoded exactly right, the value and then [EOS], by every model",
            f"{table['right']:,}/{table['total']:,}, {perfect}",
            f"{table['total']:,}/{table['total']:,}, {number} of {number}",
            table["right"] == table["total"],
        ),
        Claim(
            "any_order_same_output",
            "all 120 orders of the words of each of the 72 sources are decoded alike, by every "
            "model",
            f"{table['changed']:,} of {table['orders']:,} differ",
            "0",
            table["changed"] == 0,
        ),
        Claim(
            "any_order_same_logits",
            "the logits of all these orders are equal but for rounding, in float32 and in float64",
            f"{table['single']:.1e} and {table['double']:.1e} apart",
            f"at most {_ROUNDING32:g} and {_ROUNDING64:g}",
            table["single"] <= _ROUNDING32 and table["double"] <= _ROUNDING64,
        ),
    ]
    if control["number"]:
        claims.append(_control_sees_order(control))
    return claims


def _control_sees_order(control: Numbers) -> Claim:
    outputs = "though no decoded output changes"
    if control["changed"]:
        outputs = f"and {control['changed']:,} of {control['orders']:,} decoded outputs change"
    seeds = f"{control['number']} {plural(control['number'], 'seed')}"
    return Claim(
        "control_sees_order",
        "with positions in the encoder the logits do differ, so that the test can fail (float64); "
        "whether the decoded output changes too is reported, not claimed",
        f"logits {control['apart']} apart ({seeds}), {outputs}",
        f"more than {_SEEN:g} apart",
        control["least"] > _SEEN,
    )


def _reader_claim(reader: Numbers, numbers: Numbers) -> Claim:
    number = reader["number"]
    seeds = plural(number, "seed")
    if reader["variant"] == "loose":
        facts, chance, near = numbers["facts"], numbers["chance"], numbers["near"]
        return Claim(
            "loose_at_chance",
            f"a set of single words cannot bind {facts} {plural(facts, 'fact')}: a model that has "
            "learned to answer with one of the values shown is right with 1/k of new facts, which "
            f"is the chance (mean of {number} {seeds})",
            f"right {reader['new'].value:.1%}{reader['interval']}; a value shown "
            f"{reader['least_named']:.1%} at least",
            f"right {chance - near:.1%} to {min(1.0, chance + near):.1%}; a value "
            f"shown {_LEARNED:.0%}",
            abs(reader["new"].value - chance) <= near and reader["least_named"] >= _LEARNED,
        )
    written = "single tokens in order, with positions,"
    if reader["variant"] == "bound":
        written = "tokens that join a key and its value, without positions,"
    return Claim(
        f"{reader['variant']}_reads_new_facts",
        f"{written} are enough to look new facts up: every model, on facts never seen and on pairs "
        "that never occurred in training",
        f"{reader['good']} of {number} {seeds} ({reader['of_seeds']} of seeds, 95 % interval); "
        f"new facts {reader['least_new']:.1%} at least, new pairs "
        f"{reader['least_held_out']:.1%}",
        f"{_LEARNED:.0%} in {number} of {number}",
        reader["good"] == number,
    )


def _table_numbers(config: LookupConfig, table: FixedTable) -> Numbers:
    models = table.models
    right = torch.stack([is_right(model.model, model.split.test) for model in models])
    heads = torch.cat([model.masses[:, 0] for model in models])
    return {
        **_scrambled(models),
        "right": int(right.sum()),
        "total": right.numel(),
        "perfect": int(right.all(-1).sum()),
        "heads": len(heads),
        "more_value": int((heads[:, 1] > heads[:, 0]).sum()),
        "on_key": mean_interval(table.weights_on(0)).value,
        "on_value": mean_interval(table.weights_on(1)).value,
        "seen_sets": min(len(torch.unique(task.key_of(model.split.train))) for model in models),
        "pairs": len(table.probed),
        "answers": len(table.probed) * len(models),
        "follow": sum(probe.follow_shown for probe in table.probed),
        "own": sum(probe.say_own for probe in table.probed),
        "tested": len(models[0].split.test),
        "epochs": [model.num_steps / config.steps_per_epoch() for model in models],
    }


def _scrambled(models: list[TableModel]) -> Numbers:
    """Sum up the models on every order of every source."""
    results = [model.scrambled for model in models]
    if not results:
        return {"number": 0}
    ends = [result.difference64 for result in results]
    low, high = f"{min(ends):.2g}", f"{max(ends):.2g}"
    return {
        "number": len(results),
        "changed": sum(result.outputs_changed for result in results),
        "orders": sum(result.num_orders for result in results),
        "single": _largest([result.difference32 for result in results]),
        "double": _largest(ends),
        "least": float(np.min(ends)),
        "apart": low if low == high else f"{low} to {high}",
    }


def _reader_numbers(config: LookupConfig, readers: list[Recalled]) -> Numbers:
    task, number = config.recall_task(), config.recall_facts
    near = min(_NEAR_CHANCE, task.chance / 2)
    sets = math.comb(task.num_keys, number) * math.perm(task.num_values, number)
    return {
        "facts": number,
        "chance": task.chance,
        "near": near,
        "sets": f"{sets:,.6g}",
        "samples": max(reader.steps for reader in readers) * config.recall_batch_size,
        "readers": [_numbers_of(reader) for reader in readers],
    }


def _numbers_of(reader: Recalled) -> Numbers:
    new = mean_interval(reader.new)
    # A model counts by the worse of its two accuracies.
    worse = map(min, reader.new, reader.held_out)
    good = sum(share >= _LEARNED for share in worse)
    _, low, high = share_interval(good, len(reader.new))
    interval = ""
    if not math.isnan(new.low):
        interval = f" ({new.low:.1%} to {new.high:.1%})"
    return {
        "variant": reader.variant,
        "number": len(reader.models),
        "steps": reader.steps,
        "new": new,
        "interval": interval,
        "least_new": min(reader.new),
        "least_held_out": min(reader.held_out),
        "least_named": min(reader.named),
        "good": good,
        "of_seeds": f"{low:.0%} to {high:.0%}",
    }


def _largest(values: list[Any]) -> float:
    """Return the largest value; NaN if there is one, which max() could lose."""
    return float(np.max(values))
