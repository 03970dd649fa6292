"""The tests of recordings, tested: each planted fault in the machinery is noticed by the check
named for it."""

from functools import partial

import torch

from tests.planting import fault_tests, faults_in, run_test

from . import (
    test_budget,
    test_gradients,
    test_hostile,
    test_joining,
    test_looking,
    test_parts,
    test_storing,
    test_tokens,
)

joined = partial(
    test_joining.test_joined_steps_equal_the_uncached_pass_at_every_site, dtype=torch.float64
)
each_step = test_joining.test_each_step_shows_its_own_rows_of_the_whole
finite = partial(test_parts.test_causal_weights_are_made_as_attend_makes_them, dtype=torch.float32)
heads = test_hostile.DECEITS["too many heads"]
campaign = test_looking.test_a_recording_shows_every_site_and_changes_nothing
weights = test_looking.test_weights_made_on_demand_have_the_scale_of_their_attention
stale_names = test_tokens.test_keys_that_were_read_before_the_recording_have_places_not_wrong_names
CHECKS = {
    "campaign": partial(campaign, start=0),
    "in_place": test_looking.test_what_is_recorded_is_not_reached_by_later_changes_in_place,
    "edited_mask": test_looking.test_an_edited_mask_is_the_one_that_is_known,
    "edited_weights": test_looking.test_weights_of_an_edited_attention_are_the_edited_ones,
    "two_masks": test_looking.test_masks_that_differ_from_layer_to_layer_are_kept_apart,
    "scaled": partial(weights, scale=0.3),
    "budget": test_budget.test_a_recording_never_holds_more_than_its_budget,
    "counted": test_budget.test_what_is_kept_is_counted_to_the_byte,
    "gradients": test_gradients.test_every_gradient_is_that_of_finite_differences_at_its_own_site,
    "lies": partial(test_hostile.test_a_recording_that_lies_is_refused, deceit=heads),
    "joined": partial(joined, kind="decoder", positions="alibi"),
    "joined_panel": partial(joined, kind="encoder-decoder", positions="rotary"),
    "each_step": partial(each_step, name="weights"),
    "edited_keys": test_joining.test_an_edit_of_earlier_keys_is_seen_in_its_own_step_only,
    "kept_once": test_joining.test_keys_of_all_steps_are_kept_once,
    "last_generation": test_joining.test_the_last_of_several_generations_is_joined,
    "joined_names": test_joining.test_a_joined_recording_knows_all_tokens_and_what_was_blocked,
    "tiles": test_parts.test_tiles_are_cut_out_of_the_whole,
    "selected": test_parts.test_selected_layers_heads_and_rows_are_those_of_the_whole,
    "compared": test_parts.test_a_recording_is_not_different_from_itself_also_where_it_is_blocked,
    "blocks": test_parts.test_weights_made_block_by_block_are_those_made_at_once,
    "finite": partial(finite, broken=False),
    "finite_or_not": partial(finite, broken=True),
    "damaged": test_storing.test_every_flipped_or_missing_byte_of_the_numbers_is_found_out,
    "names": test_tokens.test_queries_and_keys_have_their_own_names,
    "stale_names": stale_names,
}

# Without a fault the checks run as tests of their own.
FAULTS = r"""
a value is kept without a copy | look.recording.recorder | in_place
- copy=True, memory_format
+ memory_format
values are kept in another precision | look.recording.recorder | campaign
- (device, copy=
+ (device, torch.float32, copy=
the budget is asked after the copy | look.recording.recorder | budget
- (site, value.nbytes)
-         return
+ (site, _copied(value, self._keep_on).nbytes)
+         return
the budget forgets what is kept | look.recording.budget | counted
- = self.kept.get(site, 0) + size
+ = size
the mask is lost | look.recording.kept_call | campaign
- if self.mask is None:
-             return
+ if True:
+             return
the first layer's mask serves all | look.recording.recorder | two_masks
- not _is_same(mask, self._last_mask)
+ False
a mask is asked for at its hook point | look.recording.recorder | edited_mask
- != "mask")
+ != "")
the offset of the queries is lost | look.recording.kept_call | each_step
- past = num_keys - query.shape[2]
+ past = 0
the offset is lost where numbers are guarded | look.recording.kept_call | finite_or_not
- [queries] + past
+ [queries]
later keys are looked at | look.recording.kept_call | finite
- .triu(1)
+ .triu(2)
the scale is lost | look.recording.kept_call | scaled
- :reach], scale=self.scale)
+ :reach])
a tile takes the keys of another group | look.recording.kept_call | tiles
- head * key.shape[1] // query.shape[1]
+ head % key.shape[1]
selected heads take another group | look.recording.selection | selected
- head * tensor.shape[1] // self.num_heads
+ 0
the last block of rows is left out | look.recording.kept_call | blocks
- in range(start, stop, step)
+ in range(start, stop - step, step)
weights are made though they are shown | look.recording.recorder | edited_weights
- if call.is_explicit:
+ if False:
gradients come to another site | look.recording.recorder | gradients
- self._add_gradient, passed
+ self._add_gradient, self._store.passed[self._store.sites[0]][0]
keys go on without being compared | look.recording.kept_call | edited_keys
- and torch.equal(value[..., :length, :], held)
+
keys never go on | look.recording.kept_call | kept_once
- return value.dtype
+ return None and value.dtype
keys lose their past | look.recording.kept_call | joined
- = self.store[..., :start, :]
+ = 0.0
two generations are joined | look.recording.join | last_generation
- before is None or entry.query != before
+ False
steps are joined in the wrong order | look.recording.join | joined_panel
- return joined[::-1]
+ return joined
cross-attention's keys have the decoder's names | look.recording.recorder | names
- if stack_name == "decoder" else None
+ if False else query
names are given though they do not fit | look.recording.recording | stale_names
- length != num_keys
+ False
earlier tokens are forgotten | look.recording.tokens | joined_names
- while read.before is not None:
+ while False:
equal infinities count as different | look.recording.difference | compared
- .masked_fill_(here == there, 0.0)
+
half of a recording is let in | core.store | damaged
- if digest_of(path) != digest:
+ if False:
a recording without its checksum is read | look.recording.archive | lies
- document.pop("digest") != _digest(document)
+ document.pop("digest") == ""
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS), lambda name: run_test(CHECKS[name])
)
