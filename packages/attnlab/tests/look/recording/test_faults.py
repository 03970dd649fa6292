"""The tests of recordings, tested: each planted fault in the machinery is noticed by the check
named for it."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from tests.parts.planting import planted

from . import (
    test_budget,
    test_gradients,
    test_joining,
    test_looking,
    test_parts,
    test_storing,
    test_tokens,
)

LATE = "(site, _copied(value, self._keep_on).nbytes)\n        return"
WRONG = "head % key.shape[1]"
SHORT = "in range(start, stop - step, step)"
FIRST = "self._add_gradient, self._store.passed[self._store.sites[0]][0]"
OWN = "if False else query"


class Fault(NamedTuple):
    """A mistake in a file of the machinery, and the check that must see it."""

    name: str
    module: str
    old: str
    new: str
    check: Callable[[], object]


def campaign():
    for seed in range(40):
        found = test_looking.look(seed)
        assert (found.is_same, found.is_clean, found.missing) == (True, True, [])
        assert found.error <= 1.0


def tiles():
    test_parts.test_tiles_are_cut_out_of_the_whole(
        test_parts.recorded(test_parts.model.__wrapped__())
    )


def gradients():
    test_gradients.test_every_gradient_is_that_of_finite_differences_at_its_own_site(
        test_gradients.model.__wrapped__()
    )


def budget():
    with pytest.MonkeyPatch.context() as patch:
        test_budget.test_a_recording_never_holds_more_than_its_budget(
            test_budget.model.__wrapped__(), patch
        )


def counted():
    test_budget.test_what_is_kept_is_counted_to_the_byte(test_budget.model.__wrapped__())


def in_place():
    test_looking.test_what_is_recorded_is_not_reached_by_later_changes_in_place()


def edited_mask():
    test_looking.test_an_edited_mask_is_the_one_that_is_known()


def edited_weights():
    test_looking.test_weights_of_an_edited_attention_are_the_edited_ones()


def edited_keys():
    test_joining.test_an_edit_of_earlier_keys_is_seen_in_its_own_step_only()


def kept_once():
    test_joining.test_keys_of_all_steps_are_kept_once()


def joined(kind=test_joining.Decoder, positions="alibi"):
    test_joining.test_joined_steps_equal_the_uncached_pass_at_every_site(
        kind, positions, torch.float64
    )


def joined_panel():
    joined(test_joining.EncoderDecoder, "rotary")


def last_generation():
    test_joining.test_the_last_of_several_generations_is_joined()


def two_masks():
    test_looking.test_masks_that_differ_from_layer_to_layer_are_kept_apart()


def scaled():
    test_looking.test_weights_made_on_demand_have_the_scale_of_their_attention(0.3)


def each_step():
    test_joining.test_each_step_shows_its_own_rows_of_the_whole("weights")


def damaged():
    with tempfile.TemporaryDirectory() as place:
        folder = test_storing.recording.__wrapped__().save(Path(place))
        test_storing.test_every_flipped_or_missing_byte_of_the_numbers_is_found_out(folder)


def names():
    test_tokens.test_queries_and_keys_have_their_own_names(test_tokens.translator.__wrapped__())


def stale_names():
    test_tokens.test_keys_that_were_read_before_the_recording_have_places_not_wrong_names(
        test_tokens.translator.__wrapped__()
    )


def joined_names():
    test_joining.test_a_joined_recording_knows_all_tokens_and_what_was_blocked()


def selected():
    test_parts.test_selected_layers_heads_and_rows_are_those_of_the_whole(
        test_parts.recorded(test_parts.model.__wrapped__())
    )


def compared():
    recording = test_parts.recorded(test_parts.model.__wrapped__())
    test_parts.test_a_recording_is_not_different_from_itself_also_where_it_is_blocked(recording)


def blocks():
    with pytest.MonkeyPatch.context() as patch:
        test_parts.test_weights_made_block_by_block_are_those_made_at_once(
            test_parts.model.__wrapped__(), patch
        )


def finite_or_not():
    for broken in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            test_parts.test_causal_weights_are_made_as_attend_makes_them(
                broken, torch.float32, patch
            )


FAULTS = [
    Fault(
        "a value is kept without a copy",
        "recorder",
        "copy=True, memory_format",
        "memory_format",
        in_place,
    ),
    Fault(
        "values are kept in another precision",
        "recorder",
        "(device, copy=",
        "(device, torch.float32, copy=",
        campaign,
    ),
    Fault(
        "the budget is asked after the copy",
        "recorder",
        "(site, value.nbytes)\n        return",
        LATE,
        budget,
    ),
    Fault(
        "the budget forgets what is kept",
        "budget",
        "= self.kept.get(site, 0) + size",
        "= size",
        counted,
    ),
    Fault(
        "the mask is lost",
        "kept_call",
        "if self.mask is None:\n            return",
        "if True:\n            return",
        campaign,
    ),
    Fault(
        "the first layer's mask serves all",
        "recorder",
        "not _is_same(mask, self._last_mask)",
        "False",
        two_masks,
    ),
    Fault("a mask is asked for at its hook point", "recorder", '!= "mask")', '!= "")', edited_mask),
    Fault(
        "the offset of the queries is lost",
        "kept_call",
        "past = num_keys - query.shape[2]",
        "past = 0",
        each_step,
    ),
    Fault(
        "the offset is lost where numbers are guarded",
        "kept_call",
        "[queries] + past",
        "[queries]",
        finite_or_not,
    ),
    Fault(
        "what is not finite is not guarded",
        "kept_call",
        "certainly_finite(query, key, scale=self.scale)",
        "True",
        finite_or_not,
    ),
    Fault("later keys are looked at", "kept_call", ".triu(1)", ".triu(2)", finite_or_not),
    Fault(
        "what was not made is left as it was",
        "kept_call",
        '0.0 if self.what == "weights" else float("-inf")',
        '7.0 if self.what == "weights" else float("-inf")',
        finite_or_not,
    ),
    Fault("the scale is lost", "kept_call", ":reach], scale=self.scale)", ":reach])", scaled),
    Fault(
        "a tile takes the keys of another group",
        "kept_call",
        "head * key.shape[1] // query.shape[1]",
        WRONG,
        tiles,
    ),
    Fault(
        "selected heads take another group",
        "selection",
        "head * tensor.shape[1] // self.num_heads",
        "0",
        selected,
    ),
    Fault(
        "the last block of rows is left out",
        "kept_call",
        "in range(start, stop, step)",
        SHORT,
        blocks,
    ),
    Fault(
        "weights are made though they are shown",
        "recorder",
        "if call.is_open:",
        "if False:",
        edited_weights,
    ),
    Fault(
        "the recorder changes a value",
        "recorder",
        "return value\n\n    def end",
        "return value * 1.001\n\n    def end",
        campaign,
    ),
    Fault(
        "gradients come to another site",
        "recorder",
        "self._add_gradient, passed",
        FIRST,
        gradients,
    ),
    Fault(
        "keys go on without being compared",
        "kept_call",
        "and torch.equal(value[..., :length, :], held)",
        "",
        edited_keys,
    ),
    Fault(
        "keys never go on",
        "kept_call",
        "return value.dtype",
        "return None and value.dtype",
        kept_once,
    ),
    Fault("keys lose their past", "kept_call", "= self.store[..., :start, :]", "= 0.0", joined),
    Fault(
        "two generations are joined",
        "join",
        "before is None or entry.query != before",
        "False",
        last_generation,
    ),
    Fault(
        "steps are joined in the wrong order",
        "join",
        "return joined[::-1]",
        "return joined",
        joined_panel,
    ),
    Fault(
        "cross-attention's keys have the decoder's names",
        "recorder",
        'if stack_name == "decoder" else None',
        OWN,
        names,
    ),
    Fault(
        "names are given though they do not fit",
        "recording",
        "length != num_keys",
        "False",
        stale_names,
    ),
    Fault(
        "earlier tokens are forgotten",
        "tokens",
        "while read.before is not None:",
        "while False:",
        joined_names,
    ),
    Fault(
        "equal infinities count as different",
        "difference",
        ".masked_fill_(here == there, 0.0)",
        "",
        compared,
    ),
    Fault(
        "half of a recording is let in",
        "attnlab.core.store",
        "if digest_of(path) != digest:",
        "if False:",
        damaged,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "_"))
def test_a_planted_fault_is_noticed(fault):
    place = fault.module if "." in fault.module else f"attnlab.look.recording.{fault.module}"
    with (
        planted(place, fault.old, fault.new),
        pytest.raises((AssertionError, pytest.fail.Exception, RuntimeError, ValueError, KeyError)),
    ):
        fault.check()


@pytest.mark.parametrize(
    "check", list(dict.fromkeys(fault.check for fault in FAULTS)), ids=lambda check: check.__name__
)
def test_without_a_fault_the_same_checks_pass(check):
    check()
