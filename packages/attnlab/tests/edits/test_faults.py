"""The tests and the certificate, tested: faults planted in the machinery."""

from functools import partial

import pytest

import attnlab.edits as op
from attnlab.edits import edit
from tests.planting import fault_tests, faults_in, run_test
from tests.random_models import random_model, tokens

from . import test_certificate as certificates
from . import test_coverage as coverage
from . import test_editing as editing
from . import test_edits_as_json as as_json
from . import test_forking, test_generation, test_recomputation
from . import test_nested_edits as nested
from .cases import WEIGHTS
from .kinds import KINDS
from .test_edits_in_numpy import FEW, check


def certified(*edits):
    """The certificate alone: no result is looked at; two heads share keys."""
    model = random_model("decoder", 1)
    with edit(model, *edits) as certificate:
        model(tokens())
        model(tokens())
    assert certificate.holds
    assert certificate.identity == 0.0
    assert set(certificate.calls.values()) == {2}


def generates_alike(edited):
    for kind in ("decoder", "encoder-decoder"):
        test_generation.test_the_same_edits_generate_the_same_with_a_cache_and_without(kind, edited)


def nested_edits():
    for edits in (nested.DIFFERENT_LAYERS, nested.SAME_SITE):
        nested.test_each_of_three_edits_inside_one_another_is_told_its_own_change("decoder", edits)
    nested.test_with_a_cache_only_the_first_pass_of_nested_edits_is_compared_and_that_is_said()


FROZEN = op.FreezePattern(layer=0, recording={WEIGHTS: test_generation.PATTERN})
lost = coverage.test_an_edit_that_lands_nowhere_is_an_error_at_the_end
refused = coverage.test_what_this_model_does_not_have_is_an_error_before_anything_runs
misfit = coverage.test_a_tensor_that_does_not_fit_its_site_is_an_error_in_the_first_pass
unread = as_json.test_json_that_is_not_an_edit_is_refused_with_the_reason

CHECKS = {
    **{kind: partial(check, kind, 0, FEW) for kind in KINDS},
    "one head": partial(certified, op.ZeroHead(layer=0, head=1)),
    "a head and scores": partial(
        certified,
        op.ZeroHead(layer=0, head=1, query="2..3"),
        op.ScaleScores(layer=1, factor=2.0, head=0, row=1),
    ),
    "an edge": partial(certified, op.CutEdge(layer=0, query=3, key=0)),
    "a value": partial(certified, op.ZeroValue(layer=0, head=1, key=2)),
    "earlier passes": partial(
        certificates.test_what_an_edit_did_in_an_earlier_pass_is_still_its_doing_where_a_cache_holds_it,
        "encoder-decoder",
    ),
    "every pass": partial(
        certificates.test_a_certificate_speaks_for_every_pass_not_for_the_first_alone, True
    ),
    "randomness": certificates.test_the_certificate_leaves_randomness_and_caches_alone,
    "text": certificates.test_a_certificate_tells_what_happened_in_text_and_in_plain_values,
    "parameters": certificates.test_parameters_that_change_under_edits_end_in_an_error,
    "generation, one edge": partial(generates_alike, op.CutEdge(layer=0, query=6, key=2)),
    "generation, names": partial(generates_alike, op.CutEdge(layer=0, key={"t1", "t2"})),
    "generation, one step": partial(
        generates_alike, op.ScaleHead(layer=0, head=0, factor=2.0, step=3)
    ),
    "generation, from the end": partial(generates_alike, op.CutEdge(layer=0, query=-1, key=-2)),
    "generation, values": partial(
        generates_alike, op.ScaleSite(site="layers.0.attention.value", factor=0.5)
    ),
    "generation, a recording": partial(generates_alike, FROZEN),
    "ways of saying a place": editing.test_the_ways_of_saying_a_place_mean_the_same,
    "a recording": partial(editing.test_a_recording_shows_what_went_on_whichever_came_first, True),
    "order": editing.test_edits_of_one_site_follow_one_another_in_the_order_given,
    "donors": editing.test_resampled_rows_are_never_ones_own_and_the_same_everywhere,
    "gradients": partial(
        editing.test_gradients_flow_through_edits_as_through_what_they_compute,
        editing.GRADIENTS[0],
    ),
    "means without padding": partial(
        editing.test_means_leave_out_the_padding_that_a_mask_tells_of, "padding", "positions"
    ),
    "lost, a span of several": partial(lost, op.ZeroHead(head=0, query=[0, "9.."]), "never"),
    "lost, an edge that is blocked": partial(lost, op.CutEdge(query=2, key=5), "changed nothing"),
    "lost, scores that are blocked": partial(
        lost, op.AddToScores(query=2, key=5, amount=3.0), "the mask blocks all of these edges"
    ),
    "misfits": partial(misfit, *coverage.MISFITS[-1]),
    "refused": partial(refused, *coverage.BEFORE[0]),
    "layers of several attentions": (
        coverage.test_a_layer_of_several_attentions_must_be_told_apart
    ),
    "unknown fields": partial(
        unread, '[{"edit": "ZeroHead", "head": 1, "hed": 1}]', "takes no 'hed'"
    ),
    "rows in JSON": as_json.test_rows_of_one_batch_survive_json,
    "forks": partial(
        test_forking.test_answers_are_alike_before_the_fork_and_edited_after_it, step=2
    ),
    "nested edits": nested_edits,
    "checkpointed blocks": partial(
        test_recomputation.test_a_checkpointed_block_is_not_edited, False, False
    ),
    "checkpointed passes before": partial(
        test_recomputation.test_going_back_inside_from_a_pass_before_the_edit_is_refused, False
    ),
}

# Without a fault, `certified` runs below, and the others as tests of their own.
FAULTS = r"""
the head beside it | edits.editor | one head
- slice(indices[0], indices[0] + 1)
+ slice(indices[0] - 1, indices[0])
all positions instead of some | edits.editor | a head and scores
- changed = torch.where(chosen, changed, here)
+ pass
nothing after the first pass | sites | one head
- part._installed = standing
+ part._installed = ()
another softmax where it is open | parts.heads | a head and scores
- attention_weights(scores, guard=guard)
+ attention_weights(scores * 1.0000001)
a cut opens all other edges | edits.editor | an edge
- return value.expand(rows, heads, query[-2], key[-2])
+ return torch.ones_like(value.expand(rows, heads, query[-2], key[-2]))
shared values laid out as tiles | edits.editor | a value
- value = share_heads(value, self._num_heads[part])
+ value = value.repeat(1, self._num_heads[part] // value.shape[1], 1, 1)
the query taken for the key | edits.coverage | cut_edge
- return self._at_positions("key", keys, ends[:, None]
+ return self._at_positions("query" if self.edit.query else "key", keys, ends[:, None]
no renormalization | edits.attention_edits | cut_edge
- return "mask" if self.renormalize else "weights"
+ object.__setattr__(self, "renormalize", False)
+         return "weights"
renormalized all the same | edits.attention_edits | cut_edge_for_good
- return "mask" if self.renormalize else "weights"
+ object.__setattr__(self, "renormalize", True)
+         return "mask"
scores edited after the softmax | parts.heads | scale_scores
- attention_weights(scores, guard=guard)
+ attention_weights(attention_scores(query, key, mask, scale=scale))
weights edited after the values were added | parts.heads | set_pattern
- weighted_values(weights, value,
+ weighted_values(attention_weights(scores), value,
the row ignored | edits.coverage | zero_head
- if "row" not in self._atoms:
+ if True:
applied twice | edits.editor | scale_head
- new[index] = changed
+ new[index] = coverage.rule.change(changed, context)
padding counted in the mean | edits.sources | mean_head
- if text is None or text.real is None or
+ if True or
swapped one way only | edits.site_edits | swap_heads
- torch.where(context.heads == one, other, one)
+ torch.full_like(context.heads, other)
the first channel alone | edits.site_edits | scale_site
- site}")] = True
+ site}")[:1]] = True
the channel beside it | edits.site_edits | scale_site
- site}")] = True
+ site}")[0] - 1] = True
the channels of all positions | edits.editor | scale_site
- chosen & channels
+ chosen | channels
uniform over blocked keys too | edits.attention_edits | uniform_pattern
- seen = context.seen.to(values.dtype)
+ seen = torch.ones_like(values)
shuffled among blocked keys too | edits.attention_edits | shuffle_pattern
- torch.where(seen, by_chance, last)
+ by_chance
the first key, blocked or not | edits.attention_edits | redirect_to_first
- ((seen.cumsum(-1) == 1) & seen)
+ (torch.arange(seen.shape[-1]).eq(0).expand_as(seen))
the pattern of other heads | edits.edit_context | freeze_pattern
- self.rows if axis == "batch" else self.heads)
+ self.rows if axis == "batch" else torch.arange(len(self.heads)))
temperature upside down | edits.attention_edits | temperature
- values / self.temperature
+ values * self.temperature
blocked scores edited | edits.attention_edits | scale_scores
- torch.where(values == float("-inf"), values, changed)
+ torch.nan_to_num(changed, posinf=1.0, neginf=1.0)
the mask moved the other way | edits.attention_edits | shift_mask
- device=values.device) - self.by
+ device=values.device) + self.by
names looked up in the other text | edits.edit_context | cut_tokens
- self.of(part, is_memory=True) if is_elsewhere else queries_text
+ queries_text
a span without its last | edits.targets | ways of saying a place
- chosen += range(low, high + 1)
+ chosen += range(low, max(high, low + 1))
the place in the text forgotten under a cache | edits.edit_context | generation, one edge
- offset = query_text.offset
+ offset = 0
what was read before forgotten under a cache | edits.edit_context | generation, names
- return before.tokens[:, :offset]
+ pass
what is read again taken for new | edits.edit_context | generation, one step
-             kept = before.length
+             kept = 0
counted from another end | edits.coverage | generation, from the end
- end if end is None or end >= 0 else ends + end
+ end if end is None or end >= 0 else len(positions) + end
the copy is no copy | edits.editor | generation, values
- new, edited = value.clone(), []
+ new, edited = value, []
recorded positions counted from the pass | edits.edit_context | generation, a recording
- tensor.index_select(place, positions.clamp(max=max(size - 1, 0)))
+ tensor.narrow(place, 0, len(positions))
the check loses sight of what a cache would hold | edits.cache_twins | earlier passes
- twin.advance(length - twin.length)
+ twin.advance(0)
the largest change is that of the first pass | edits.certificate | every pass
- self.largest = max(self.largest, largest)
+ self.largest = self.largest if self.passes else largest
the check draws random numbers | edits.checks | randomness
- with _random_again(call.random), _state_again
+ with _state_again
the check is seen by others | sites | a recording
- tuple(entry for entry in standing if entry.hook in keep)
+ standing
in the reverse order | edits.editor | order
- for coverage in self.at[site]:
+ for coverage in reversed(self.at[site]):
a row may be its own donor | edits.sources | donors
- order.roll(1)
+ order
one target found is enough | edits.coverage | lost, a span of several
- if atom not in self._met[axis]:
+ if not self._met[axis]:
an edit that changes nothing passes | edits.coverage | lost, an edge that is blocked
- if self.edit.NOTHING and not self._has_changed:
-             return
+ if False:
+             return
scores that are blocked count as changed | edits.attention_edits | lost, scores that are blocked
- is_open if chosen is None else is_open & chosen
+ is_open
a recorded head serves every head | edits.edit_context | misfits
- tensor.shape[place] == 1 and (axis == "batch" or not is_recorded)
+ tensor.shape[place] == 1
a layer beyond the last | edits.targets | refused
- if not 0 <= low <= high < size:
+ if False:
ambiguous layers edited all | edits.targets | layers of several attentions
- if len(here) > 1:
+ if False:
unknown fields passed over | edits.edit | unknown fields
-             if field not in known:
+             if False:
the row lost on the way through JSON | edits.edit | rows in JSON
- form[name] = plain_value(value, brief=brief)
+ form[name] = None if name == "row" else plain_value(value, brief=brief)
rows that sum to one counted as off | edits.certificate | text
- off = alive & _is_off(weights)
+ off = alive & ~_is_off(weights)
the parameters are not looked at again | edits.checks | parameters
- self._editor.certificate.parameters = (before, _hash(self._model))
+ self._editor.certificate.parameters = (before, before)
gradients stopped | edits.editor | gradients
- here = new[index].clone()
+ here = new[index].detach().clone()
a fork forgets what was chosen before it | look.questions | forks
- prompt=extended(self.prompt, _ids_of(choices, self.vocabulary)),
+ prompt=self.prompt,
edits inside change what is compared | edits.checks | nested edits
- repeats.enter_context(hook.repeated())
+ pass
the pass without an edit is not compared | edits.checks | nested edits
- if call.alone is not None:
+ if False:
both passes share a cache | edits.checks | nested edits
- alone = with_new_caches((args, kwargs)) if later else None
+ alone = None
a cache that was filled before is compared | edits.checks | nested edits
- (later and has_filled_cache((args, kwargs)))
+ False
earlier edits are set aside too | edits.checks | nested edits
- set_aside(self._model, call.earlier), ExitStack()
+ set_aside(self._model), ExitStack()
a checkpointed block is edited while it runs | edits.editor | checkpointed blocks
- in_backward() or _is_checkpointed()
+ in_backward()
a checkpointed block is edited on the way back | edits.editor | checkpointed passes before
- in_backward() or _is_checkpointed()
+ False
padding of a mask counted in the mean | models.stack | means without padding
- real = real_positions(mask, len(tokens))
+ pass
the first pass alone is compared | edits.checks | every pass
- arguments = self._twins.of((args, kwargs))
+ is_first = not self._editor.certificate.effects
+                 arguments = self._twins.of((args, kwargs)) if is_first else None
"""


@pytest.mark.parametrize("name", ["one head", "a head and scores", "an edge", "a value"])
def test_a_certificate_without_a_fault_holds(name):
    CHECKS[name]()


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS), lambda name: run_test(CHECKS[name])
)
