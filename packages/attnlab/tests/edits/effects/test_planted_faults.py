"""Planted faults: real mistakes in the machinery, each of which a check must see."""

import contextlib
import dataclasses
import importlib
import itertools

import pytest
import torch

from attnlab.edits.effects import baseline, controls, metrics, significance
from attnlab.edits.effects import patches as patching
from attnlab.edits.effects import sweep as sweeping
from attnlab.edits.effects import tail as tails
from attnlab.errors import WrongUsage
from attnlab.look import readout
from attnlab.look.inputs import Call
from attnlab.models import Decoder
from attnlab.parts.norms import LayerNorm
from tests.edits.effects import (
    checks,
    test_ablate,
    test_controls,
    test_metrics,
    test_patching,
    test_significance,
)

# The functions of these names hide their modules.
effect, ablate = (
    importlib.import_module(f"attnlab.edits.effects.{name}") for name in ("effect", "ablate")
)

P = torch.tensor([0.01, 0.04, 0.03, 0.2], dtype=torch.float64)
REAL_INTERVALS = significance.intervals
REAL_KNOWN, REAL_TAIL, REAL_SWEEP = sweeping.known_before, tails.find_tail, sweeping.sweep


def prefix_of_the_wrong_layer(monkeypatch):
    """The known block's output is that of the block after it."""

    def known(baseline, site, times):
        found = REAL_KNOWN(baseline, site, times)
        blocks = [name for name in baseline.order if name.endswith("residual_after")]
        for one, after in itertools.pairwise(blocks):
            if one in found:
                found[one] = lambda value=baseline.values[after]: sweeping.copies(value, times)
        return found

    monkeypatch.setattr(sweeping, "known_before", known)


def rows_mixed_up(monkeypatch):
    """Copies are laid row by row, the batch copy by copy."""
    monkeypatch.setattr(sweeping, "copies", lambda value, times: value.repeat_interleave(times, 0))


def cases_mixed_up(monkeypatch):
    """Results come back in another order than the cases."""
    real = sweeping._batches
    monkeypatch.setattr(sweeping, "_batches", lambda *told: [each[::-1] for each in real(*told)])
    real_logits = sweeping._logits
    monkeypatch.setattr(
        sweeping, "_logits", lambda m, s, b, cases, n: real_logits(m, s, b, cases[::-1], n)
    )


def the_first_rows_of_the_mask(monkeypatch):
    """The last queries look as the first ones may."""

    def found(model, baseline, num_last, times, site):
        tail = REAL_TAIL(model, baseline, num_last, times, site)
        if tail is None:
            return None
        size = baseline.logits.shape[1]
        return dataclasses.replace(tail, mask=torch.ones(num_last, size).tril().bool())

    monkeypatch.setattr(sweeping, "find_tail", found)


def the_tail_has_no_offset(monkeypatch):
    """Rotary positions of the last queries start from 0."""

    class Unmoved(tails.Rotary):
        def forward(self, x, offset=0):
            return super().forward(x, 0)

    real = tails.Tail.attended

    def attended(self, x):
        position, self.block.attention.position = self.block.attention.position, Unmoved()
        try:
            return real(self, x)
        finally:
            self.block.attention.position = position

    monkeypatch.setattr(tails.Tail, "attended", attended)


REAL_FORWARD = Decoder.forward


def the_last_position_but_one_is_kept(monkeypatch):
    """The last positions end one too early."""

    def forward(self, tokens, *, num_last=None, **told):
        logits = REAL_FORWARD(self, tokens, **told)
        return logits if num_last is None else logits[:, -num_last - 1 : -1]

    monkeypatch.setattr(Decoder, "forward", forward)


def the_cut_edge_is_not_shared_out(monkeypatch):
    """A cut edge's weight is lost, not shared out among the others."""

    def cutting(call, value, heads, query, key):
        def write(whole):
            left = ablate._row_of_scores(call, query)[:, heads].softmax(-1)
            left[..., key] = 0.0
            whole[:, heads, query] = (left @ value[:, heads]).squeeze(-2)

        return write

    monkeypatch.setattr(ablate, "_cutting", cutting)


def the_wrong_head_is_silenced(monkeypatch):
    real = ablate.writer
    monkeypatch.setattr(
        ablate,
        "writer",
        lambda source, place: real(source, dataclasses.replace(place, head=place.head - 1)),
    )


def labels_are_counted_from_the_start(monkeypatch):
    """Positions are taken from the start, also where the first ones were left out."""
    real = metrics.PreparedMetric.__call__

    def call(self, logits, before):
        return (
            real(self, logits.flip(1), before.flip(1))
            if logits.dim() == 3
            else real(self, logits, before)
        )

    monkeypatch.setattr(metrics.PreparedMetric, "__call__", call)


def the_share_is_upside_down(monkeypatch):
    real = patching.Recovery.share
    monkeypatch.setattr(patching.Recovery, "share", lambda self, values: 1.0 - real(self, values))


def the_patch_goes_the_other_way(monkeypatch):
    """The clean run is patched with the corrupted one's values."""
    real = patching.patch_pairs

    def turned(*arguments, direction, **told):
        return real(
            *arguments, direction={"denoise": "noise", "noise": "denoise"}[direction], **told
        )

    monkeypatch.setattr(patching, "patch_pairs", turned)


def the_correction_is_not_applied(monkeypatch):
    monkeypatch.setattr(checks, "adjusted", lambda p, correction: p)
    monkeypatch.setattr(significance, "adjusted", lambda p, correction="holm": p)


def holm_does_not_stay_monotone(monkeypatch):
    monkeypatch.setattr(
        checks,
        "adjusted",
        lambda p, correction: ((len(p) - p.argsort().argsort()) * p).clamp(max=1.0),
    )


def p_counts_one_side(monkeypatch):
    real = significance.p_values
    monkeypatch.setattr(
        test_significance, "p_values", lambda values, **told: real(values, **told) / 2
    )


def the_draws_do_not_hold_the_data(monkeypatch):
    real = significance.p_values
    monkeypatch.setattr(
        test_significance,
        "p_values",
        lambda values, draws=10_000: (real(values, draws=draws) * (draws + 1) - 1) / draws,
    )


def the_baseline_is_edited_too(monkeypatch):
    """The run without the edits is made within them."""
    real = effect._run
    kept = []

    def run(*arguments, **told):
        kept.append(real(*arguments, **told))
        return kept[0]

    monkeypatch.setattr(effect, "_run", run)


def the_kernels_differ(monkeypatch):
    """The run without the edits is left on the fused kernel."""
    monkeypatch.setattr(effect, "opened", lambda model, sites: contextlib.nullcontext())


def the_mean_is_not_taken_off(monkeypatch):
    """A layer norm is taken for one that does not centre."""
    real = readout._held
    monkeypatch.setattr(
        readout,
        "_held",
        lambda norm, written, *more: (
            written
            / (written.sum(0).var(-1, correction=0, keepdim=True) + norm.epsilon).sqrt()
            * norm.weight
            if isinstance(norm, LayerNorm)
            else real(norm, written, *more)
        ),
    )


def each_part_is_normed_by_itself(monkeypatch):
    """The scale is each part's own, not that of their sum."""
    monkeypatch.setattr(
        readout, "_held", lambda norm, written, *_: torch.stack([norm(each) for each in written])
    )


def the_bias_of_the_output_is_forgotten(monkeypatch):
    real = readout._through

    def through(name, function, written, writers):
        found = real(name, function, written, writers)
        if name.endswith("attention") and writers[-1].part == f"{name} bias":
            writers.pop()
            return found[:-1]
        return found

    monkeypatch.setattr(readout, "_through", through)


def keys_are_shared_by_strangers(monkeypatch):
    """With fewer keys than heads, the next group's key is taken."""
    real = baseline.scores_of

    def scores_of(call, head=None):
        return real(call._replace(key=call.key.flip(1), value=call.value.flip(1)), head)

    monkeypatch.setattr(baseline, "scores_of", scores_of)


def the_tests_are_not_counted(monkeypatch):
    """The least p is that of one test by itself."""
    real = significance.least_p
    monkeypatch.setattr(
        significance, "least_p", lambda inputs, tests, **told: real(inputs, 1, **told)
    )


def idle_heads_are_listed_all_the_same(monkeypatch):
    monkeypatch.setattr(
        controls.PatternEffects,
        "pretty_but_idle",
        property(lambda self: self._where(self.is_sharp & ~self.pattern_matters)),
    )


def the_typical_change_is_that_of_all_patches(monkeypatch):
    """Patches that do nothing make the typical change small."""
    monkeypatch.setattr(
        patching.Patched,
        "typical_change",
        property(
            lambda self: float((self.after.mean(-1) - self.ends.corrupted.mean()).abs().mean())
        ),
    )


def shuffled_weights_fall_on_blocked_keys(monkeypatch):
    def shuffled(weights, allowed, draw):
        return weights.gather(-1, torch.rand(weights.shape, generator=draw).argsort(-1))

    monkeypatch.setattr(test_controls, "_shuffled", shuffled)


def a_donor_is_oneself(monkeypatch):
    monkeypatch.setattr(test_controls, "other_rows", lambda number, draw: torch.arange(number))


def portions_lose_their_labels(monkeypatch):
    """Every portion of the rows is judged by the first rows' labels."""
    real = metrics.Metric.rows
    monkeypatch.setattr(
        metrics.Metric, "rows", lambda self, span: real(self, slice(0, span.stop - span.start))
    )


def some_heads():
    for seed in (1, 2, 4):
        checks.check_sweep(seed, "heads")


def some_edges():
    for seed in (0, 1):
        checks.check_sweep(seed, "edges", most=6)


def short_tails():
    for positions in ("rotary", "alibi"):
        test_ablate.test_the_last_block_is_cut_short_where_only_last_positions_count(
            positions, "pre", "padded decoder"
        )


def attributions():
    for seed in range(4):
        checks.check_attribution(seed, "decoder")


def some_controls():
    for seed in (1, 2, 3, 7):
        checks.check_controls(seed)


def patches():
    checks.check_patches(1, "heads")
    checks.check_ends(1)


def corrections():
    checks.check_holm(P)
    checks.check_bh(P)


def exact_p():
    test_significance.test_few_inputs_are_tested_exactly(5)
    test_significance.test_the_data_count_among_the_draws_so_that_p_is_never_0()


def small_budgets():
    for seed in (9,):
        test_ablate.test_budget_and_threads_change_nothing(seed, {"budget": 1})


def few_inputs():
    test_controls.test_inputs_too_few_to_show_anything_give_no_verdict(8, "holm")


def faint_contrasts():
    test_patching.test_runs_that_barely_differ_against_what_patches_change_are_warned_of("denoise")


def shuffles():
    test_controls.test_shuffled_weights_are_the_same_weights_on_allowed_keys(1)


def rounding_is_taken_for_an_effect(monkeypatch):
    monkeypatch.setattr(sweeping, "_MARGIN", 0.0)


def copies_are_taken_for_inputs(monkeypatch):
    monkeypatch.setattr(Call, "copies", lambda self: torch.arange(self.num_rows))


def skewness_of_the_wrong_sign(monkeypatch):
    """The long side of the interval is where the short one belongs."""

    def turned(values):
        mean = values.mean(1)
        low, high = REAL_INTERVALS(values)
        return 2 * mean - high, 2 * mean - low

    monkeypatch.setattr(test_significance, "intervals", turned)


def skewed_intervals():
    test_significance.check_skewed(10)


FAULTS = [
    (rounding_is_taken_for_an_effect, test_controls.check_rounding),
    (copies_are_taken_for_inputs, test_controls.check_copies),
    (skewness_of_the_wrong_sign, skewed_intervals),
    (prefix_of_the_wrong_layer, some_heads),
    (rows_mixed_up, some_heads),
    (cases_mixed_up, some_heads),
    (the_wrong_head_is_silenced, some_heads),
    (the_first_rows_of_the_mask, short_tails),
    (the_tail_has_no_offset, short_tails),
    (the_last_position_but_one_is_kept, short_tails),
    (the_cut_edge_is_not_shared_out, some_edges),
    (labels_are_counted_from_the_start, test_metrics.test_the_last_positions_alone_are_enough),
    (portions_lose_their_labels, small_budgets),
    (the_share_is_upside_down, patches),
    (the_patch_goes_the_other_way, patches),
    (the_correction_is_not_applied, corrections),
    (holm_does_not_stay_monotone, corrections),
    (p_counts_one_side, exact_p),
    (the_draws_do_not_hold_the_data, exact_p),
    (the_baseline_is_edited_too, checks.check_no_effect_is_exactly_nothing),
    (the_kernels_differ, checks.check_no_effect_is_exactly_nothing),
    (the_mean_is_not_taken_off, attributions),
    (each_part_is_normed_by_itself, attributions),
    (the_bias_of_the_output_is_forgotten, attributions),
    (the_tests_are_not_counted, few_inputs),
    (idle_heads_are_listed_all_the_same, few_inputs),
    (the_typical_change_is_that_of_all_patches, faint_contrasts),
    (keys_are_shared_by_strangers, some_controls),
    (shuffled_weights_fall_on_blocked_keys, shuffles),
    (a_donor_is_oneself, test_controls.test_every_donor_is_another_input_and_gives_once),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "check"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_the_check_sees_the_fault(fault, check, monkeypatch):
    check()
    fault(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, WrongUsage)):
        check()
