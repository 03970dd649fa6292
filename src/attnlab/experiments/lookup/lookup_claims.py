"""The claims about look-up."""

import math

from attnlab.core.stats import mean_interval, share_interval
from attnlab.draw.numbers import plural
from attnlab.experiments.claims import Claim
from attnlab.experiments.lookup.config import LookupConfig
from attnlab.experiments.lookup.fixed_table import FixedFound, Scrambled, decoder_leak, is_right
from attnlab.experiments.lookup.format import range_text, share_text
from attnlab.experiments.lookup.recall import Recalled
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.parameters import count_from_config, count_from_model
from attnlab.tasks.recall import RecallTask

# Measured over 20 seeds: at most 3e-06 and 8e-15. An encoder with positions moves the logits by 0.8
# or more.
_ROUNDING32, _ROUNDING64 = 1e-5, 1e-11
_SEEN = 1e-3  # a difference between logits beyond rounding
_SUM_ERROR = 1e-6  # of float32 weights that sum to 1
_NEAR_CHANCE = 0.03
_LEARNED = 0.99


def fixed_claims(found: FixedFound) -> list[Claim]:
    """Evaluate the claims about the models of the fixed table."""
    members, scrambled, masses = found.members, found.scrambled, found.masses
    right = [is_right(member.model, member.split.test) for member in members]
    num_right, num_all = sum(int(each.sum()) for each in right), sum(len(each) for each in right)
    perfect = sum(bool(each.all()) for each in right)
    changed = sum(each.outputs_changed for each in scrambled)
    orders = sum(each.num_orders for each in scrambled)
    single = _largest([each.difference32 for each in scrambled])
    double = _largest([each.difference64 for each in scrambled])
    error = _largest([each.largest_error for each in masses])
    padded = _largest([each.largest_on_padding for each in masses])
    return [
        Claim(
            "decoded_right",
            "every test sample is decoded exactly right, the value and then [EOS], by every model",
            f"{num_right:,}/{num_all:,}, perfect in {perfect} of {len(members)} "
            f"{plural(len(members), 'seed')}",
            f"{num_all:,}/{num_all:,}, {len(members)} of {len(members)}",
            num_right == num_all,
        ),
        Claim(
            "any_order_same_output",
            "all 120 orders of the words of each of the 72 sources are decoded alike, by "
            "every model",
            f"{changed:,} of {orders:,} differ",
            "0",
            changed == 0,
        ),
        Claim(
            "any_order_same_logits",
            "the logits of all these orders are equal but for rounding, in float32 and in float64",
            f"{single:.1e} and {double:.1e} apart",
            f"at most {_ROUNDING32:g} and {_ROUNDING64:g}",
            single <= _ROUNDING32 and double <= _ROUNDING64,
        ),
        *([_control_claim(found.controls_scrambled)] if found.controls else []),
        Claim(
            "masses_add_up",
            "the cross-attention weights of every head sum to 1 over the words of the source, and "
            "padding gets none",
            f"sums within {error:.0e} of 1, {padded:g} on padding",
            f"within {_SUM_ERROR:g}, exactly 0",
            error <= _SUM_ERROR and padded == 0.0,
        ),
    ]


def _control_claim(controls: list[Scrambled]) -> Claim:
    least, most = (pick(each.difference64 for each in controls) for pick in (min, max))
    moved = sum(each.outputs_changed for each in controls)
    moved_of = sum(each.num_orders for each in controls)
    changes = "though no decoded output changes"
    if moved:
        changes = f"and {moved:,} of {moved_of:,} decoded outputs change"
    return Claim(
        "control_sees_order",
        "with positions in the encoder the logits do differ, so that the test can fail "
        "(float64); whether the decoded output changes too is reported, not claimed",
        f"logits {range_text(least, most)} apart ({len(controls)} "
        f"{plural(len(controls), 'seed')}), {changes}",
        f"more than {_SEEN:g} apart",
        least > _SEEN,
    )


def model_claims(model: EncoderDecoder, *, is_fixed: bool) -> list[Claim]:
    """Evaluate the claims about the architecture of the run's model."""
    claims = []
    if is_fixed:
        leak, change, number = decoder_leak(model)
        claims.append(
            Claim(
                "causal_decoder",
                "no output of the decoder depends on a later token of the target: largest "
                f"derivative, and largest change when later tokens are exchanged, over {number} "
                "targets of 5 tokens",
                f"{leak:g} and {change:g}",
                "exactly 0",
                leak == 0.0 and change == 0.0,
            )
        )
    by_config, by_model = count_from_config(model.config), count_from_model(model)
    claims.append(
        Claim(
            "parameters_counted",
            "the parameters of each part, counted by arithmetic, are those the model holds",
            f"{sum(by_model.values()):,} in {len(by_model)} parts",
            f"{sum(by_config.values()):,} in {len(by_config)} parts",
            by_config == by_model,
        )
    )
    return claims


def recall_claims(config: LookupConfig, recalled: list[Recalled]) -> list[Claim]:
    """Evaluate the claims about in-context look-up."""
    claims = [
        _loose_claim(each, config) if each.variant == "loose" else _learned_claim(each)
        for each in recalled
    ]
    both = sum(int((each.pairs & each.asked_held_out).sum()) for each in recalled)
    asked = sum(int(each.asked_held_out.sum()) for each in recalled)
    claims.append(
        Claim(
            "asked_pairs_are_new",
            "no pair of a key and a value that is evaluated as held out occurred in training",
            f"{f'{both:,}' if both else 'none'} of the {asked:,} {plural(asked, 'pair')} asked "
            f"was ever trained on; training showed {share_text(shown_share(config, recalled))} of "
            "the others",
            "0",
            both == 0,
        )
    )
    return claims


def shown_share(config: LookupConfig, recalled: list[Recalled]) -> float:
    """Return the share of the allowed pairs that occurred in training."""
    task: RecallTask = config.recall_task("bound")
    shown = allowed = 0
    for each in recalled:
        indices = (~each.asked_held_out).nonzero()
        may = ~task.is_held_out(indices[:, 0], indices[:, 1])
        allowed += int(may.sum())
        shown += int(each.pairs[indices[may, 0], indices[may, 1]].sum())
    return shown / max(allowed, 1)


def _loose_claim(loose: Recalled, config: LookupConfig) -> Claim:
    chance, number = config.recall_task("loose").chance, len(loose.new)
    near = min(_NEAR_CHANCE, chance / 2)
    mean, low, high = mean_interval(loose.new)
    shown = min(loose.named)
    return Claim(
        "loose_at_chance",
        f"a set of single words cannot bind {config.recall_facts} "
        f"{plural(config.recall_facts, 'fact')}: a model that has learned to answer with one of "
        f"the values shown is right with 1/k of new facts, which is the chance (mean of {number} "
        f"{plural(number, 'seed')})",
        f"right {share_text(mean)}{_interval_text(low, high)}; a value shown "
        f"{share_text(shown)} at least",
        f"right {share_text(chance - near)} to {share_text(min(1.0, chance + near))}; a value "
        f"shown {_LEARNED:.0%}",
        abs(mean - chance) <= near and shown >= _LEARNED,
    )


def _learned_claim(recalled: Recalled) -> Claim:
    what = {
        "bound": "tokens that join a key and its value, without positions, are enough",
        "ordered": "single tokens in order, with positions, are enough",
    }[recalled.variant]
    # A model counts by the worse of its two accuracies.
    worst = [min(pair) for pair in zip(recalled.new, recalled.held_out, strict=True)]
    good = sum(each >= _LEARNED for each in worst)
    _, low, high = share_interval(good, len(worst))
    return Claim(
        f"{recalled.variant}_reads_new_facts",
        f"{what} to look new facts up: every model, on facts never seen and on pairs that "
        "never occurred in training",
        f"{good} of {len(worst)} {plural(len(worst), 'seed')} ({_percents(low, high)} of seeds, "
        f"95 % interval); new facts {share_text(min(recalled.new))} at least, new pairs "
        f"{share_text(min(recalled.held_out))}",
        f"{_LEARNED:.0%} in {len(worst)} of {len(worst)}",
        good == len(worst),
    )


def _interval_text(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" ({share_text(low)} to {share_text(high)})"


def _percents(low: float, high: float) -> str:
    return f"{low:.0%} to {high:.0%}"


def _largest(values: list[float]) -> float:
    """Return the largest value, or NaN if there is one, which max() could lose."""
    return math.nan if any(math.isnan(value) for value in values) else max(values)
