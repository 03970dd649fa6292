"""Planted faults: real mistakes in the machinery, each of which a check must see."""

from functools import partial

from tests.edits.effects import (
    checks,
    test_ablate,
    test_controls,
    test_effect,
    test_metrics,
    test_patching,
    test_significance,
)
from tests.planting import fault_tests, faults_in


def each(check, *cases):
    """Run a check on several cases."""
    return lambda: [check(*case) for case in cases]


tail = test_ablate.test_the_last_block_is_cut_short_where_only_last_positions_count
CHECKS = {
    "heads": each(checks.check_sweep, (1, "heads"), (2, "heads"), (4, "heads")),
    "edges": each(checks.check_sweep, *((seed, "edges", "loss", 6) for seed in (0, 1))),
    "short_tails": each(tail, *((each, "pre", "padded decoder") for each in ("rotary", "alibi"))),
    "last_positions": test_metrics.test_the_last_positions_alone_are_enough,
    "portions": partial(test_ablate.test_budget_and_threads_change_nothing, 9, {"budget": 1}),
    "padding": test_ablate.test_padding_that_a_mask_tells_of_is_no_last_position,
    "attributions": each(checks.check_attribution, *((seed, "decoder") for seed in range(4))),
    "controls": each(
        test_controls.test_controls_that_are_edits_give_what_the_edits_give, (1,), (2,), (3,)
    ),
    "shuffles": partial(
        test_controls.test_shuffled_weights_are_the_same_weights_on_allowed_keys, 1
    ),
    "few_inputs": partial(
        test_controls.test_inputs_too_few_to_show_anything_give_no_verdict, 8, "holm"
    ),
    "patches": partial(
        test_patching.test_a_patch_is_what_the_edit_gives_and_lies_where_it_should_between_the_runs,
        1,
        "heads",
    ),
    "faint_contrasts": partial(
        test_patching.test_runs_that_barely_differ_against_what_patches_change_are_warned_of,
        "denoise",
    ),
    "corrections": partial(
        test_significance.test_corrections_are_the_closed_test_and_the_rule_of_benjamini_and_hochberg,
        5,
    ),
    "exact_p": partial(test_significance.test_few_inputs_are_tested_exactly, 5),
    "never_0": test_significance.test_the_data_count_among_the_draws_so_that_p_is_never_0,
    "skewed_intervals": partial(
        test_significance.test_intervals_of_few_skewed_differences_hold_the_truth_as_often_as_is_said,
        10,
    ),
    "rounding": test_controls.test_an_effect_below_rounding_is_none,
    "copies": test_controls.test_copies_of_inputs_count_once,
    "no_effect": test_effect.test_no_effect_is_exactly_nothing_and_the_baseline_is_not_edited,
}

# The checks without a fault run as tests of their own.
FAULTS = """
rounding is taken for an effect | edits.effects.sweep | rounding
- _MARGIN * torch.maximum(moved
+ 0.0 * torch.maximum(moved
copies are taken for inputs | edits.effects.controls | copies
- copies = call.copies()
+ copies = torch.arange(call.num_rows)
the prefix is that of the last layer | edits.effects.sweep | heads
- writers[earlier] = lambda value=value
+ value = [v for name, v in baseline.values.items() if name[-6:] == earlier[-6:]][-1]
+         writers[earlier] = lambda value=value
the last queries look as the first ones may | edits.effects.tail | short_tails
- mask[..., -num_last:, :]
+ mask[..., :num_last, :]
the last positions end one too early | models.decoder | short_tails
- x[:, -num_last:]
+ x[:, -num_last - 1 : -1]
the weight of a cut edge is lost | edits.effects.ablate | edges
- left[..., key] = float("-inf")
-     gathered = weighted_values(attention_weights(left),
+ left = attention_weights(left)
+     left[..., key] = 0.0
+     gathered = weighted_values(left,
the first position counts | edits.effects.metrics | last_positions
- position = place - length
+ position = place * 0
portions have the labels of the first rows | edits.effects.metrics | portions
- argument[index]
+ argument[: index.stop - index.start]
a metric reads padding | look.inputs | padding
- return real_positions(cast(Mask, self.options.get(mask)), self.num_rows)
+ return None
the share is upside down | edits.effects.patched | patches
- return (values.mean(-1) - low)
+ return 1.0 - (values.mean(-1) - low)
the patch goes the other way | edits.effects.patches | patches
- (corrupted, clean) if direction == "denoise" else (clean, corrupted)
+ (clean, corrupted) if direction == "denoise" else (corrupted, clean)
the typical change is that of all patches | edits.effects.patched | faint_contrasts
- (changes.square().sum() / changes.sum())
+ changes.mean()
the correction is not applied | edits.effects.significance | corrections
- if correction == "none" or len(p) == 0:
+ if True:
Holm's p does not stay monotone | edits.effects.significance | corrections
- .cummax(0).values
+ * 1.0
p counts one side | edits.effects.significance | exact_p
- return count / number
+ return count / number / 2
the draws do not hold the data | edits.effects.significance | never_0
- (count + 1.0) / (number + 1.0)
+ count / number
the skewness has the wrong sign | edits.effects.significance | skewed_intervals
- mean - t_at(quantile) * error, mean - t_at(-quantile) * error
+ mean + t_at(-quantile) * error, mean + t_at(quantile) * error
the tests are not counted | edits.effects.significance | few_inputs
- p *= num_tests
+ p *= 1
the run without the edits is made within them | edits.effects.effect | no_effect
- with explicit_attention(model, edited):
+ with explicit_attention(model, edited), edit(model, *edits, vocabulary=vocabulary, certify=False):
the run without the edits stays on the fused kernel | edits.effects.effect | no_effect
- with explicit_attention(model, edited):
+ with explicit_attention(model, ()):
a layer norm does not take off the mean | look.readout | attributions
- return _with_bias(name, norm.linear(written), norm.bias, writers)
+ return _with_bias(name, norm.scale * norm.weight * written, norm.bias, writers)
idle heads are listed all the same | edits.effects.controls | few_inputs
- if not (self.can_tell and self._asks_where):
+ if not self._asks_where:
heads take the values of the next group | edits.effects.baseline | controls
- value = value[:, head : head + 1]
+ value = value[:, value.shape[1] - head - 1 : value.shape[1] - head]
shuffled weights fall on blocked keys | edits.effects.controls | shuffles
- chance.masked_fill(~allowed, 2.0).argsort(-1)
+ chance.argsort(-1)
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS), lambda name: CHECKS[name]()
)
