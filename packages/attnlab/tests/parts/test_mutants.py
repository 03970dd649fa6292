"""The tests themselves, tested: the mistakes that attention code is known for."""

import math
from contextlib import nullcontext
from functools import reduce
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F

from attnlab.parts import attend
from attnlab.parts.linear import matrix_path_probe
from tests.planting import planted
from tests.sampling import first_of_each

from . import test_attend as of_attend
from . import test_attend_reference as of_reference
from . import test_blocks as of_blocks
from . import test_cache as of_cache
from . import test_causality as of_causality
from . import test_feed_forward as of_feed_forward
from . import test_heads as of_heads
from . import test_linear as of_linear
from . import test_masks as of_masks
from . import test_norms as of_norms
from . import test_positions as of_positions
from . import test_projections as of_projections

INF, NAN = math.inf, math.nan

# The checks: a test, and what it is called with.
SCALE = (of_attend.test_the_scale_is_one_over_the_root_of_the_width_unless_another_is_asked_for,)
WEIGHTS = (of_attend.test_weights_are_zero_where_blocked_and_live_rows_of_them_sum_to_one,)
DEAD = (of_attend.test_a_query_that_may_look_at_nothing_gets_zeros_forward_and_backward, True)
DROPOUT = (of_attend.test_dropout_leaves_the_returned_weights_alone_and_the_mean_output_too,)
FLOAT_MASK = (of_attend.test_a_float_mask_is_added_to_the_scores_whatever_its_precision, True)
GARBAGE = (of_attend.test_garbage_in_a_key_and_value_that_nobody_may_see_changes_nothing, NAN)
DEAD_GARBAGE = (
    of_attend.test_garbage_in_a_query_that_sees_nothing_harms_nothing,
    *(NAN, torch.float32, True),
)
SURFACES = (of_attend.test_a_nan_that_is_attended_to_surfaces, "value", True)
BLIND = (of_attend.test_garbage_where_nobody_can_look_at_the_numbers_stays_blocked_too, False)
VAST = (of_attend.test_a_vast_query_and_a_vast_blocked_key_do_not_overflow_the_fused_kernel,)
WIDE_MASK = (
    of_attend.test_a_wide_float_mask_means_the_same_to_half_precision_on_both_paths,
    torch.float16,
)
AXES = (of_attend.test_leading_axes_of_any_number_give_the_same_on_both_paths,)
AUTOCAST = (of_attend.test_autocast_rounds_neither_scores_nor_weights, torch.bfloat16)
ONES = (
    of_attend.test_a_float_mask_of_zeros_and_ones_is_refused_with_what_to_give_instead,
    *(True, torch.float64),
)
REFERENCE = (of_reference.check_cases, 0, 36)
CAUSAL = (of_causality.test_attend_is_causal, "causal", True)
CAUSAL_HEADS = (of_causality.test_multi_head_attention_is_causal, "none", True)
WORD = (of_masks.test_the_word_causal_is_the_causal_mask_for_any_lengths,)
DRAWN = (of_masks.test_small_masks_look_as_drawn,)
COMBINED = (of_masks.test_both_is_and_and_none_allows_everything,)
TORCH = (of_heads.test_our_heads_are_those_of_torch_with_the_same_weights, 28, 4, True)
SHARED = (of_heads.test_any_number_of_shared_heads_is_the_reference, 3, "dense", True)
HEAD_DROPOUT = (of_heads.test_dropout_acts_in_training_only_and_never_on_the_returned_weights,)
ROTARY = (of_heads.test_rotary_in_the_heads_turns_queries_and_keys_as_the_reference_does, 2)
ALIBI = (of_heads.test_alibi_in_the_heads_is_the_bias_of_the_reference, True)
STEPS = (of_cache.test_heads_step_by_step_give_the_full_causal_pass, "rotary", [1] * 23)
APPENDS = (of_cache.test_appending_is_concatenating, 2)
ROOM = (of_cache.test_room_is_doubled_so_that_appending_rarely_copies,)
MIXED = (of_cache.test_two_blocks_of_one_cache_do_not_mix_their_keys,)
SINUSOIDS = (
    of_positions.test_sinusoids_are_added_at_their_offset_however_long_and_in_whatever_precision,
)
LEARNED = (of_positions.test_learned_positions_are_rows_of_their_weight,)
NORM = of_norms.test_each_norm_is_its_formula_the_reference_and_torch
LAYER_NORM, RMS_NORM = ((NORM, kind, 0.1, (2, 3, 11)) for kind in ("layer", "rms"))
PROJECTION = (of_projections.test_each_head_applies_its_own_weight, True)
GELU = (of_feed_forward.test_two_layers_and_an_activation_agree_with_the_reference, "gelu")
SWIGLU = (of_feed_forward.test_swiglu_agrees_with_the_reference,)
PRE = (of_blocks.test_a_block_is_its_formula, "pre", "layer")
POST = (of_blocks.test_a_block_is_its_formula, "post", "layer")
MEMORY = (of_blocks.test_a_memory_mask_hides_a_part_of_the_memory,)
RESIDUAL_DROPOUT = (of_blocks.test_the_residual_dropout_acts_on_what_is_added,)
ONEDNN = (
    of_linear.test_onednn_gives_the_output_and_the_gradients_of_the_default_path,
    *((509,), True),
)


def inverted(mask):
    return ~mask if torch.is_tensor(mask) and mask.dtype == torch.bool else mask


def top_left(mask, query, key):
    return torch.ones(query.shape[-2], key.shape[-2]).tril().bool() if mask == "causal" else mask


def without_memory_mask(forward):
    def faulty(self, x, context=None, *, mask=None, **options):
        return forward(self, x, context, mask=mask if context is None else None, **options)

    return faulty


# What is replaced, by what (made of the sound function f), and the check that notices it.
FAULTS = [
    ("attend:scale_factor", lambda f: lambda scale, width: 1.0, SCALE),
    ("attend:scale_factor", lambda f: lambda scale, width: f(scale or None, width), SCALE),
    ("attend:scale_factor", lambda f: lambda scale, width: f(scale, width**2), REFERENCE),
    ("attend:as_tensor", lambda f: lambda *x: inverted(f(*x)), WEIGHTS),
    ("attend:attention_scores", lambda f: lambda *x, **o: f(*x, **o).clamp(min=-1e9), WEIGHTS),
    ("attend:attention_weights", lambda f: lambda s, **_: f(s.mT).mT, WEIGHTS),
    ("attend:attention_weights", lambda f: lambda s, **_: f(s.clamp(-9)) * (s > -INF), WEIGHTS),
    ("attend:attention_weights", lambda f: lambda s, **_: s.softmax(-1).nan_to_num(0.5), WEIGHTS),
    ("attend:attention_weights", lambda f: lambda s, **_: s.softmax(-1).nan_to_num(0.0), DEAD),
    ("attend:_at_least_float32", lambda f: lambda tensor: tensor, WEIGHTS),
    ("attend:F.dropout", lambda f: lambda x, p: f(x, p) * (1 - p), DROPOUT),
    ("attend:weighted_values", lambda f: lambda w, v, **o: f(w.mul_(0.9), v, **o), DROPOUT),
    ("attend:as_tensor", lambda f: lambda *x: f(*x) * 0, FLOAT_MASK),
    ("attend:_may_hold_garbage", lambda f: lambda tensor: False, (*GARBAGE, True)),
    ("attend:_needs_care", lambda f: lambda *_: False, (*GARBAGE, False)),
    ("attend:_cleaned", lambda f: lambda tensor: tensor, DEAD_GARBAGE),
    ("attend:_is_garbage", lambda f: lambda tensor: torch.zeros_like(f(tensor)), SURFACES),
    ("attend:_cleaned", lambda f: lambda tensor: tensor, BLIND),
    ("attend:_reached_by_garbage", lambda f: lambda q, k, v, mask: f(q, k, k, mask), BLIND),
    ("attend:_within_safe_range", lambda f: lambda *x: f(*x[1:]), VAST),
    ("attend:_needs_care", lambda f: lambda *_: False, WIDE_MASK),
    ("attend:_with_all_axes", lambda f: lambda query, *_: query, AXES),
    ("attend:_autocast_disabled", lambda f: lambda kind: nullcontext(), AUTOCAST),
    ("attend:refuse_zeros_and_ones", lambda f: lambda mask: None, ONES),
    ("attend:_mask_for_kernel", lambda f: top_left, WORD),
    ("masks:_places", lambda f: lambda *x: (f(*x)[0] - 1, f(*x)[1]), CAUSAL),
    ("masks:_places", lambda f: lambda *x: (f(*x)[0] + 1, f(*x)[1]), CAUSAL),
    ("masks:_places", lambda f: lambda *x: (f(*x)[0] - 1, f(*x)[1]), DRAWN),
    ("masks:_places", lambda f: lambda q, k, d: f(q, q, d)[:1] + f(k, k, d)[1:], STEPS),
    ("masks:sliding_window_mask", lambda f: lambda q, w, *x: f(q, w + 1, *x), DRAWN),
    ("masks:prefix_mask", lambda f: lambda length, prefix: f(length, prefix + 1), DRAWN),
    ("masks:block_mask", lambda f: lambda n: f(n) | f([sum(n)]).tril(), DRAWN),
    ("masks:padding_mask", lambda f: lambda *x: ~f(*x), DRAWN),
    ("masks:padding_mask", lambda f: lambda *x: f(*x).mT, DRAWN),
    ("masks:both", lambda f: lambda *given: f(*given[:1]), COMBINED),
    ("heads:split_heads", lambda f: lambda x, n: x.unflatten(-1, (-1, n)).movedim(-1, 1), TORCH),
    ("heads:share_heads", lambda f: lambda x, n: x.repeat(1, n // x.shape[1], 1, 1), SHARED),
    ("heads:attend_at", lambda f: lambda *x, **o: f(*x, **o | {"dropout": 0.0}), HEAD_DROPOUT),
    ("heads:attend_at", lambda f: lambda *x, **o: f(*x, **o | {"dropout": 0.4}), HEAD_DROPOUT),
    ("heads:attend_at", lambda f: lambda *x, **o: f(*x[:4], None, **o), CAUSAL_HEADS),
    ("heads:MultiHeadAttention.forward", without_memory_mask, MEMORY),
    ("positions:rotate", lambda f: lambda x, offset, base: f(x, offset, base=1e3), ROTARY),
    ("positions:rotate", lambda f: lambda x, offset, base: f(x), STEPS),
    ("positions:alibi_bias", lambda f: lambda *x: -f(*x), ALIBI),
    ("positions:alibi_slopes", lambda f: lambda num_heads: 2 * f(num_heads), ALIBI),
    ("positions:Alibi.masked", lambda f: lambda self, mask, *x: f(self, None, *x), ALIBI),
    ("positions:sinusoidal_positions", lambda f: lambda *x, **o: f(*x, **o).roll(1), SINUSOIDS),
    ("positions:_rows", lambda f: lambda table, offset, length: table[:length], LEARNED),
    (
        "norms:LayerNorm.forward",
        lambda f: lambda self, x: F.layer_norm(x, x.shape[-1:], self.weight, self.bias),
        LAYER_NORM,
    ),
    ("norms:RMSNorm.forward", lambda f: lambda s, x: f(s, x) / s.weight, RMS_NORM),
    (
        "projections:factorised_weight",
        lambda f: (
            lambda a, b, *, temperature, base: f(a, b, temperature=1 / temperature, base=base)
        ),
        PROJECTION,
    ),
    (
        "projections:factorised_weight",
        lambda f: lambda a, b, *, temperature, base: (a @ b / temperature).softmax(-2) * base,
        PROJECTION,
    ),
    (
        "feed_forward:_activated",
        lambda f: lambda x, *_, **o: F.gelu(x, approximate="tanh"),
        GELU,
    ),
    (
        "feed_forward:FeedForward.forward",
        lambda f: lambda self, x: self.outer(self.gate(x) * F.silu(self.inner(x))),
        SWIGLU,
    ),
    ("cache:LayerCache._with_room", lambda f: lambda self, store, new: f(self, None, new), APPENDS),
    (
        "cache:LayerCache.keys_and_values",
        lambda f: lambda self: (self._keys, self._values),
        APPENDS,
    ),
    (
        "cache:LayerCache._with_room",
        lambda f: lambda self, old, new: new if old is None else torch.cat((old, new), -2),
        ROOM,
    ),
    ("cache:Cache.layer", lambda f: lambda self, name: f(self, ""), MIXED),
    ("blocks:Block._add", lambda f: lambda self, x, *y: f(self, 0 * x, *y), PRE),
    ("blocks:Block._read", lambda f: lambda self, x, norm: x, PRE),
    ("blocks:Block._read", lambda f: lambda self, x, _: f(self, x, self.norm_attention), PRE),
    ("blocks:Block._add", lambda f: lambda self, x, update, norm: x + norm(update), POST),
    ("blocks:dropped", lambda f: lambda update, *_, **o: update, RESIDUAL_DROPOUT),
    ("linear:_onednn", lambda f: lambda x, weight, bias: f(x, weight, None), ONEDNN),
    ("linear:_weight_gradient", lambda f: lambda grad, x: f(grad, x) / len(x), ONEDNN),
]


@pytest.mark.parametrize(
    ("place", "fault", "check"),
    first_of_each(FAULTS, lambda case: case[0].partition(":")[0]),
    ids=[f"{place}-{check[0].__name__[5:45]}" for place, _, check in FAULTS],
)
def test_a_planted_fault_is_noticed(place, fault, check, monkeypatch):
    """Noticed means a failed claim: a crash of any other kind would be luck."""
    if check is ONEDNN and matrix_path_probe().ratio is None:
        pytest.skip("no oneDNN linear in this torch")
    file, path = place.split(":")
    *holder, name = path.split(".")
    owner = reduce(getattr, holder, import_module(f"attnlab.parts.{file}"))
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    test, *given = check
    with pytest.raises(AssertionError):
        test(*given)


def test_a_planted_text_is_there_for_everybody_and_gone_after_an_error():
    one = torch.ones(1, 4)

    def use_and_fail():
        with planted("attnlab.parts.attend", "float(width**-0.5)", "7.0"):
            assert attend(one, one, one).scores.item() == 28.0
            raise KeyError

    with pytest.raises(KeyError):
        use_and_fail()
    assert attend(one, one, one).scores.item() == 2.0
    for old in ("no such text", "return", "_SAFE_MAGNITUDE = 1e15"):  # none, many, no function
        with pytest.raises(AssertionError), planted("attnlab.parts.attend", old, "x = 1"):
            pass
