"""The tests and the certificate, tested: faults planted in the machinery, each noticed by what is
named for it.

A check is a function and its arguments. Noticed means a failed claim, or an edit that says it has
not landed or is not to be trusted; any other crash would be luck, and comes out as an error here.
"""

from typing import Any, NamedTuple

import pytest

import attnlab.edits as op
from attnlab.edits import edit
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from tests.parts.planting import planted

from . import test_certificate, test_coverage, test_editing, test_edits_as_json, test_generation
from .cases import make, tokens
from .test_edits_in_numpy import check


def in_numpy(kind: str) -> None:
    assert check(kind, 0, 16)


def certified(*edits: op.Edit) -> None:
    """The certificate alone: no result is looked at."""
    model = make("decoder", 0)
    with edit(model, *edits) as certificate:
        model(tokens())
        model(tokens())
    assert certificate.holds
    assert certificate.identity == 0.0
    assert set(certificate.calls.values()) == {2}


def generates_alike(number: int) -> None:
    for kind in ("decoder", "both"):
        test_generation.test_the_same_edits_generate_the_same_with_a_cache_and_without(
            kind, test_generation.EDITS_OF_A_GENERATION[number]
        )


def numbered(kind: type, **told: Any) -> int:
    """The place of an edit in the list of those that generate alike."""
    edits = test_generation.EDITS_OF_A_GENERATION
    return next(
        i
        for i, each in enumerate(edits)
        if type(each) is kind and each._told().items() >= told.items()
    )


def lost(number: int) -> None:
    test_coverage.test_an_edit_that_lands_nowhere_is_an_error_at_the_end(
        *test_coverage.AFTER[number], certify=False
    )


def refused(number: int) -> None:
    test_coverage.test_what_this_model_does_not_have_is_an_error_before_anything_runs(
        *test_coverage.BEFORE[number]
    )


NOTICED = (AssertionError, pytest.fail.Exception, WrongUsage, CouldNotRun)


class Fault(NamedTuple):
    name: str
    module: str
    old: str
    new: str
    check: Any
    arguments: tuple[Any, ...] = ()


ONE_HEAD = (op.ZeroHead(layer=0, head=1),)
AND_SCORES = (
    op.ZeroHead(layer=0, head=1, query="2..3"),
    op.ScaleScores(layer=1, factor=2.0, head=0, row=1),
)
BLOCKED = [
    i for i, (_, message) in enumerate(test_coverage.AFTER) if "the mask blocks all" in message
]
LISTS = [i for i, (_, message) in enumerate(test_coverage.AFTER) if "9" in message]

FAULTS = [
    # What the certificate, or the landing, notices by itself.
    Fault(
        "the head beside it",
        "editor",
        "slice(indices[0], indices[0] + 1)",
        "slice(indices[0] - 1, indices[0])",
        certified,
        ONE_HEAD,
    ),
    Fault(
        "all positions instead of some",
        "editor",
        "changed = torch.where(chosen, changed, here)",
        "pass",
        certified,
        AND_SCORES,
    ),
    Fault(
        "a site silently skipped",
        "editor",
        "return site in self.at or",
        "return site in list(self.at)[1:] or",
        certified,
        AND_SCORES,
    ),
    Fault(
        "an edit silently skipped",
        "editor",
        "for coverage in self.at[site]:",
        "for coverage in self.at[site][1:]:",
        certified,
        ONE_HEAD,
    ),
    Fault(
        "nothing after the first pass",
        "sites",
        "part._installed = standing\n",
        "part._installed = ()\n",
        certified,
        ONE_HEAD,
    ),
    Fault(
        "another softmax where it is open",
        "parts.heads",
        "attention_weights(scores, guard=guard)",
        "attention_weights(scores * 1.0000001)",
        certified,
        AND_SCORES,
    ),
    Fault(
        "the mask forgotten where it is open",
        "parts.heads",
        "attention_scores(query, key, mask, scale=scale, guard=guard)",
        "attention_scores(query, key, scale=scale)",
        certified,
        AND_SCORES,
    ),
    Fault(
        "the wrong row",
        "editor",
        "index = _index(*rows_and_heads)\n        rows, heads = rows_and_heads\n",
        "rows, heads = rows_and_heads\n        index = _index(rows and [0 for _ in rows], heads)\n",
        certified,
        AND_SCORES,
    ),
    # What the comparison with NumPy notices.
    Fault(
        "the query taken for the key",
        "edits.coverage",
        'return self._at_positions("key", keys, ends[:, None]',
        'return self._at_positions("query" if self.edit.query else "key", keys, ends[:, None]',
        in_numpy,
        ("cut_edge",),
    ),
    Fault(
        "no renormalisation",
        "edits.attention_edits",
        'return "mask" if self.renormalise else "weights"',
        'object.__setattr__(self, "renormalise", False)\n        return "weights"',
        in_numpy,
        ("cut_edge",),
    ),
    Fault(
        "renormalised all the same",
        "edits.attention_edits",
        'return "mask" if self.renormalise else "weights"',
        'object.__setattr__(self, "renormalise", True)\n        return "mask"',
        in_numpy,
        ("cut_edge_for_good",),
    ),
    Fault(
        "scores edited after the softmax",
        "parts.heads",
        "attention_weights(scores, guard=guard)",
        "attention_weights(attention_scores(query, key, mask, scale=scale))",
        in_numpy,
        ("scale_scores",),
    ),
    Fault(
        "weights edited after the values were added",
        "parts.heads",
        "weighted_values(weights, value,",
        "weighted_values(attention_weights(scores), value,",
        in_numpy,
        ("set_pattern",),
    ),
    Fault(
        "the row ignored",
        "edits.coverage",
        'if "row" not in self._atoms:',
        "if True:",
        in_numpy,
        ("zero_head",),
    ),
    Fault(
        "applied twice",
        "editor",
        "new[index] = changed\n",
        "new[index] = coverage.rule.change(changed, context)\n",
        in_numpy,
        ("scale_head",),
    ),
    Fault(
        "the heads of a group laid out as tiles",
        "editor",
        "value = share_heads(value, self._num_heads[part])",
        "value = value.repeat(1, self._num_heads[part] // value.shape[1], 1, 1)",
        in_numpy,
        ("zero_value",),
    ),
    Fault(
        "padding counted in the mean",
        "edits.sources",
        "if text is None or text.real is None or",
        "if True or",
        in_numpy,
        ("mean_head",),
    ),
    Fault(
        "swapped one way only",
        "edits.site_edits",
        "torch.where(context.heads == one, other, one)",
        "torch.full_like(context.heads, other)",
        in_numpy,
        ("swap_heads",),
    ),
    Fault(
        "uniform over blocked keys too",
        "edits.attention_edits",
        "seen = context.seen.to(values.dtype)",
        "seen = torch.ones_like(values)",
        in_numpy,
        ("uniform_pattern",),
    ),
    Fault(
        "shuffled among blocked keys too",
        "edits.attention_edits",
        "torch.where(seen, by_chance, last)",
        "by_chance",
        in_numpy,
        ("shuffle_pattern",),
    ),
    Fault(
        "the first key, blocked or not",
        "edits.attention_edits",
        "((seen.cumsum(-1) == 1) & seen)",
        "(torch.arange(seen.shape[-1]).eq(0).expand_as(seen))",
        in_numpy,
        ("redirect_to_first",),
    ),
    Fault(
        "the pattern of other heads",
        "edits.edit_context",
        'self.rows if axis == "batch" else self.heads)',
        'self.rows if axis == "batch" else torch.arange(len(self.heads)))',
        in_numpy,
        ("freeze_pattern",),
    ),
    Fault(
        "temperature upside down",
        "edits.attention_edits",
        "values / self.temperature",
        "values * self.temperature",
        in_numpy,
        ("temperature",),
    ),
    Fault(
        "blocked scores edited",
        "edits.attention_edits",
        'torch.where(values == float("-inf"), values, changed)',
        "torch.nan_to_num(changed, posinf=1.0, neginf=1.0)",
        in_numpy,
        ("scale_scores",),
    ),
    Fault(
        "the mask moved the other way",
        "edits.attention_edits",
        "device=values.device) - self.by",
        "device=values.device) + self.by",
        in_numpy,
        ("shift_mask",),
    ),
    Fault(
        "names looked up in the other text",
        "edits.edit_context",
        "self.of(part, is_memory=True) if is_elsewhere else queries_text",
        "queries_text",
        in_numpy,
        ("cut_tokens",),
    ),
    Fault(
        "a span without its last",
        "edits.targets",
        "chosen += range(low, high + 1)",
        "chosen += range(low, max(high, low + 1))",
        test_editing.test_the_ways_of_saying_a_place_mean_the_same,
    ),
    # What the other tests notice.
    Fault(
        "the place in the text forgotten under a cache",
        "edits.edit_context",
        "offset = query_text.offset",
        "offset = 0",
        generates_alike,
        (numbered(op.CutEdge, query=6, key=2),),
    ),
    Fault(
        "what was read before forgotten under a cache",
        "edits.edit_context",
        "return before.tokens[:, :offset]",
        "pass",
        generates_alike,
        (numbered(op.CutEdge, key=("t1", "t2")),),
    ),
    Fault(
        "what is read again taken for new",
        "edits.edit_context",
        "            kept = before.length\n",
        "            kept = 0\n",
        generates_alike,
        (numbered(op.ScaleHead, step=3),),
    ),
    Fault(
        "counted from another end",
        "edits.coverage",
        "end if end is None or end >= 0 else ends + end",
        "end if end is None or end >= 0 else len(positions) + end",
        generates_alike,
        (numbered(op.CutEdge, query=-1),),
    ),
    Fault(
        "the copy is no copy",
        "editor",
        "new, edited = value.clone(), []",
        "new, edited = value, []",
        generates_alike,
        (numbered(op.ScaleSite, site="layers.0.attention.value"),),
    ),
    Fault(
        "recorded positions counted from the pass",
        "edits.edit_context",
        "tensor.index_select(place, positions.clamp(max=max(size - 1, 0)))",
        "tensor.narrow(place, 0, len(positions))",
        generates_alike,
        (numbered(op.FreezePattern),),
    ),
    Fault(
        "the check loses sight of what a cache would hold",
        "edits.checks",
        "twin.advance(length - twin.length)",
        "twin.advance(0)",
        test_certificate.test_what_an_edit_did_in_an_earlier_pass_is_still_its_doing_where_a_cache_holds_it,
        ("both",),
    ),
    Fault(
        "the largest change is that of the first pass",
        "edits.certificate",
        "self.largest = max(self.largest, largest)",
        "self.largest = self.largest if self.passes else largest",
        test_certificate.test_a_certificate_speaks_for_every_pass_not_for_the_first_alone,
        (True,),
    ),
    Fault(
        "the check draws random numbers",
        "edits.checks",
        "with _random_again(call.random), _state_again",
        "with _state_again",
        test_certificate.test_the_certificate_leaves_randomness_and_caches_alone,
    ),
    Fault(
        "the check is seen by others",
        "sites",
        "tuple(entry for entry in standing if entry.hook in keep)",
        "standing",
        test_editing.test_a_recording_shows_what_went_on_whichever_came_first,
        (True,),
    ),
    Fault(
        "in the reverse order",
        "editor",
        "for coverage in self.at[site]:",
        "for coverage in reversed(self.at[site]):",
        test_editing.test_edits_of_one_site_follow_one_another_in_the_order_given,
    ),
    Fault(
        "a row may be its own donor",
        "edits.sources",
        "order.roll(1)",
        "order",
        test_editing.test_resampled_rows_are_never_ones_own_and_the_same_everywhere,
    ),
    Fault(
        "one target found is enough",
        "edits.coverage",
        "if atom not in self._met[axis]:",
        "if not self._met[axis]:",
        lost,
        (LISTS[0],),
    ),
    Fault(
        "an edit that changes nothing passes",
        "edits.coverage",
        "if self.edit.NOTHING and not self._has_changed:\n            return",
        "if False:\n            return",
        lost,
        (7,),
    ),
    Fault(
        "scores that are blocked count as changed",
        "edits.attention_edits",
        "is_open if chosen is None else is_open & chosen",
        "is_open",
        lost,
        (BLOCKED[0],),
    ),
    Fault(
        "a recorded head serves every head",
        "edits.edit_context",
        'tensor.shape[place] == 1 and (axis == "batch" or not is_recorded)',
        "tensor.shape[place] == 1",
        test_coverage.test_a_tensor_that_does_not_fit_its_site_is_an_error_in_the_first_pass,
        test_coverage.MISFITS[-1],
    ),
    Fault(
        "a layer beyond the last",
        "edits.targets",
        "if not 0 <= low <= high < size:",
        "if False:",
        refused,
        (0,),
    ),
    Fault(
        "ambiguous layers edited all",
        "edits.targets",
        "if len(here) > 1:",
        "if False:",
        test_coverage.test_a_layer_of_several_attentions_must_be_told_apart,
    ),
    Fault(
        "unknown fields passed over",
        "edits.edit",
        "            if field not in known:\n",
        "            if False:\n",
        test_edits_as_json.test_json_that_is_not_an_edit_is_refused_with_the_reason,
        ('[{"edit": "ZeroHead", "head": 1, "hed": 1}]', "takes no 'hed'"),
    ),
    Fault(
        "the row lost on the way through JSON",
        "edits.edit",
        "form[name] = plain(value, brief=brief)",
        'form[name] = None if name == "row" else plain(value, brief=brief)',
        test_edits_as_json.test_rows_of_one_batch_survive_json,
    ),
    Fault(
        "rows that sum to one counted as off",
        "edits.certificate",
        "off = alive & _is_off(weights)",
        "off = alive & ~_is_off(weights)",
        test_certificate.test_a_certificate_tells_what_happened_in_text_and_in_plain_values,
    ),
    Fault(
        "the parameters are not looked at again",
        "edits.checks",
        "self._editor.certificate.parameters = (before, _hash(self._model))",
        "self._editor.certificate.parameters = (before, before)",
        test_certificate.test_parameters_that_change_under_edits_end_in_an_error,
    ),
    Fault(
        "gradients stopped",
        "editor",
        "here = new[index].clone()",
        "here = new[index].detach().clone()",
        test_editing.test_gradients_flow_through_edits_as_through_what_they_compute,
        (test_editing.GRADIENTS[0],),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_noticed(fault):
    fault.check(*fault.arguments)
    module = {"editor": "attnlab.edits.editor"}.get(fault.module, f"attnlab.{fault.module}")
    with planted(module, fault.old, fault.new), pytest.raises(NOTICED) as caught:
        fault.check(*fault.arguments)
    if isinstance(caught.value, AttnlabError):
        assert any(
            word in str(caught.value) for word in ("landed", "do not trust", "changed nothing")
        )


def test_there_are_many_different_faults():
    assert len({(fault.module, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS) >= 30
