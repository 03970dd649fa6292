"""Planted faults: the mistakes that attention code is known for, and the tests that must notice
each of them.

A row is the fault's name, the old snippet, the new one, and its checks; a check is a test file, a
test in it, and arguments. `test_mutants` plants them one by one.
"""

from typing import Any, NamedTuple

import torch

Check = tuple[Any, ...]


class Mutant(NamedTuple):
    """A fault in a module; each of its checks must fail on it."""

    name: str
    module: str
    old: str
    new: str
    checks: tuple[Check, ...]


def _in(module: str, *rows: tuple[Any, ...]) -> list[Mutant]:
    return [
        Mutant(name, f"attnlab.{module}", old, new, tuple(checks))
        for name, old, new, *checks in rows
    ]


REFERENCE = ("test_attend_reference", "check_cases", 0, 36)
SCALE = (
    "test_attend",
    "test_the_scale_is_one_over_the_root_of_the_width_unless_another_is_asked_for",
)
ZERO = ("test_attend", "test_masked_weights_are_exactly_zero")
SUM = ("test_attend", "test_live_rows_of_weights_sum_to_one_and_dead_ones_to_zero")
DEAD = ("test_attend", "test_a_query_that_may_look_at_nothing_gets_zeros_forward_and_backward")
DEAD_SCORES = ("test_attend", "test_rows_of_scores_inside_attend_get_finite_gradients")
GARBAGE = (
    "test_attend",
    "test_garbage_in_a_key_and_value_that_nobody_may_see_changes_nothing",
    float("nan"),
)
LATER = (
    "test_attend",
    "test_garbage_that_only_later_queries_see_changes_nothing_for_the_earlier_ones",
)
SURFACES = ("test_attend", "test_a_nan_that_is_attended_to_surfaces")
DROPOUT = ("test_attend", "test_dropout_leaves_the_returned_weights_alone_and_the_mean_output_too")
HALF = ("test_attend", "test_large_scores_of_half_precision_inputs_are_computed_in_float32")
FLOAT_MASK = ("test_attend", "test_a_float_mask_is_added_to_the_scores_whatever_its_precision")
DEAD_QUERY = (
    "test_attend",
    "test_garbage_in_a_query_that_may_look_at_nothing_gives_zeros_and_harms_no_gradient",
    float("nan"),
)
VAST = ("test_attend", "test_a_vast_query_and_a_vast_blocked_key_do_not_overflow_the_fused_kernel")
WIDE_MASK = ("test_attend", "test_a_wide_float_mask_means_the_same_to_half_precision_on_both_paths")
AXES = ("test_attend", "test_leading_axes_of_any_number_give_the_same_on_both_paths")
AUTOCAST = ("test_attend", "test_autocast_rounds_neither_scores_nor_weights", torch.bfloat16)
BLIND = ("test_attend", "test_garbage_where_nobody_can_look_at_the_numbers_stays_blocked_too")
CAUSAL = ("test_causality", "test_attend_is_causal", "causal")
ZEROS_AND_ONES = (
    "test_attend",
    "test_a_float_mask_of_zeros_and_ones_is_refused_with_what_to_give_instead",
    False,
    "float64",
)
MEANT_TO_BE_ADDED = ("test_attend", "test_what_may_be_meant_to_be_added_is_added")
DRAWN = ("test_masks", "test_small_masks_look_as_drawn")
MASKS = ("test_masks", "test_masks_are_those_of_the_reference")
WORD = ("test_masks", "test_the_word_causal_is_the_causal_mask_for_any_lengths")
COMBINED = ("test_masks", "test_both_is_and_either_is_or_and_none_allows_everything")
HEADS = ("test_heads", "test_every_number_of_shared_heads_agrees_with_the_reference")
TORCH_HEADS = ("test_heads", "test_our_heads_are_those_of_torch_with_the_same_weights")
FIRST_HEAD = ("test_heads", "test_the_first_head_gets_the_first_channels")
NEIGHBOURS = ("test_heads", "test_neighbouring_query_heads_share_a_key_head")
HEAD_DROPOUT = (
    "test_heads",
    "test_dropout_acts_in_training_only_and_never_on_the_returned_weights",
)
ALIBI_HEADS = ("test_heads", "test_alibi_in_the_heads_is_the_bias_of_the_reference", True)
ROTARY_HEADS = (
    "test_heads",
    "test_rotary_in_the_heads_turns_queries_and_keys_as_the_reference_does",
    2,
)
TURN = ("test_positions", "test_a_pair_of_channels_turns_by_its_position")
DISTANCE = (
    "test_positions",
    "test_turning_keeps_lengths_and_makes_products_depend_on_the_distance_alone",
    8,
)
SINUSOIDS = ("test_positions", "test_sinusoids_are_those_of_the_reference_at_any_offset", 7)
ADDED = (
    "test_positions",
    "test_sinusoids_are_added_at_their_offset_however_long_and_in_whatever_precision",
)
LEARNED = ("test_positions", "test_learned_positions_are_rows_of_their_weight")
BESIDE = ("test_positions", "test_concatenated_positions_stand_beside_the_token")
SLOPES = ("test_positions", "test_slopes_are_powers_of_two_and_other_counts_borrow")
BIAS = ("test_positions", "test_bias_falls_with_distance_and_is_zero_at_home")
BIAS_AND_MASK = ("test_positions", "test_bias_and_mask_become_one_float_mask")
LAYER_NORM = (
    "test_norms",
    "test_layer_norm_is_its_formula_the_reference_and_torch",
    (2, 3, 11),
    0.1,
)
RMS_NORM = ("test_norms", "test_rms_norm_is_its_formula_the_reference_and_torch", (2, 3, 11), 0.1)
KIND = ("test_norms", "test_each_kind_makes_its_norm")
ROOT = ("test_norms", "test_epsilon_stands_inside_the_root")
ACTIVATION = ("test_feed_forward", "test_two_layers_and_an_activation_agree_with_the_reference")
SWIGLU = ("test_feed_forward", "test_swiglu_agrees_with_the_reference")
FACTORISED = (
    "test_projections",
    "test_the_factorised_weight_is_that_of_the_reference_and_its_rows_sum_to_one",
    0.3,
)
EACH_HEAD = ("test_projections", "test_each_head_applies_its_own_weight", True)
APPENDS = ("test_cache", "test_many_small_appends_keep_everything_that_came_before")
STEPS = ("test_cache", "test_heads_step_by_step_give_the_full_causal_pass")
FORMULA = ("test_blocks", "test_a_block_is_its_formula")
STREAM = ("test_blocks", "test_a_block_whose_sub_layers_add_nothing_passes_the_stream_on")
MEMORY = ("test_blocks", "test_a_memory_mask_hides_a_part_of_the_memory")
LOOKING = ("test_sites", "test_looking_at_every_site_changes_nothing", "none", "pre", False)
GONE = ("test_sites", "test_nothing_stays_behind_also_after_an_error")
RETURNED = (
    "test_sites",
    "test_what_an_hook_returns_is_what_the_model_goes_on_with",
    "layers.0.attention.output",
)
MIXED = ("test_cache", "test_two_blocks_of_one_cache_do_not_mix_their_keys")
ROOM = ("test_cache", "test_room_is_doubled_so_that_appending_rarely_copies")
ONEDNN = (
    "test_linear",
    "test_onednn_gives_the_output_and_the_gradients_of_the_default_path",
    (509,),
    True,
)
ONES = [1] * 23
ROTARY_STEPS, ALIBI_STEPS, PLAIN_STEPS = (
    (*STEPS, position, 2, ONES) for position in ("rotary", "alibi", "none")
)
PRE, POST, NONE = ((*FORMULA, place, "layer") for place in ("pre", "post", "none"))
SHARED = (*HEADS, 2, "dense", True)
FLOAT_HEADS, FUSED_HEADS = (
    (*TORCH_HEADS, need_weights, "float64") for need_weights in (True, False)
)

ATTEND = _in(
    "parts.attend",
    ("no scale", "return float(width**-0.5)", "return 1.0", SCALE, REFERENCE),
    ("autocast rounds weights", "torch.autocast(kind, enabled=False)", "nullcontext()", AUTOCAST),
    (
        "a mask for more scores than there are",
        "query = query.expand(*leading, -1, -1)",
        "pass",
        AXES,
    ),
    ("scale by d, not by its root", "float(width**-0.5)", "float(width**-1.0)", SCALE, REFERENCE),
    ("a scale of 0 taken for none", "if scale is False:", "if not scale:", SCALE),
    (
        "mask inverted",
        'products.masked_fill(~tensor, float("-inf"))',
        'products.masked_fill(tensor, float("-inf"))',
        ZERO,
        REFERENCE,
        (*CAUSAL, True),
    ),
    (
        "-1e9 instead of -inf",
        'products.masked_fill(~tensor, float("-inf"))',
        "products.masked_fill(~tensor, -1e9)",
        ZERO,
        SUM,
        (*DEAD, True),
    ),
    (
        "-1e9 in float masks",
        '.masked_fill(blocked, float("-inf"))',
        ".masked_fill(blocked, -1e9)",
        ZERO,
        SUM,
    ),
    (
        "mask after the softmax",
        "    weights = attention_weights(scores, guard=guard)\n",
        "    weights = attention_weights(attention_scores(query, key, scale=scale)) * "
        "(scores > float('-inf'))\n",
        SUM,
        REFERENCE,
    ),
    (
        "softmax over the queries",
        "| broken, 0.0).softmax(-1)",
        "| broken, 0.0).softmax(-2)",
        SUM,
        REFERENCE,
    ),
    (
        "dead rows left uniform",
        "weights = weights.masked_fill(blocked, 0.0)",
        "pass",
        SUM,
        (*DEAD, True),
    ),
    (
        "NaN repaired after the softmax",
        "scores.masked_fill(dead | broken, 0.0).softmax(-1)",
        "scores.softmax(-1)",
        DEAD_SCORES,
        (*DEAD, True),
    ),
    (
        "dropout on the returned weights",
        "return Attention(output, weights, scores)",
        "return Attention(output, F.dropout(weights, dropout), scores)",
        DROPOUT,
        HEAD_DROPOUT,
    ),
    (
        "dropout that does not scale up the rest",
        "dropped = F.dropout(weights, dropout)",
        "dropped = weights * (torch.rand_like(weights) >= dropout)",
        DROPOUT,
    ),
    (
        "half precision not raised",
        "return tensor.float()",
        "return tensor",
        HALF,
        SUM,
    ),
    ("output left in float32", "guard=guard).to(query.dtype)", "guard=guard)", HALF),
    (
        "float mask ignored",
        "(products + tensor.masked_fill(blocked, 0.0))",
        "products",
        (*FLOAT_MASK, True),
        REFERENCE,
        FLOAT_HEADS,
    ),
    (
        "garbage in values not cleaned",
        "if not (guard and _may_hold_garbage(output)):",
        "if True:",
        (*GARBAGE, True),
    ),
    (
        "garbage in keys not cleaned",
        "if is_guarded and (_may_hold_garbage(query) or _may_hold_garbage(key)):",
        "if False:",
        (*GARBAGE, True),
        (*LATER, "boolean", "key", float("nan"), True),
    ),
    (
        "NaN in a visible value hidden",
        '    return output.masked_fill(reached, float("nan"))',
        "    return output",
        (*SURFACES, "value", True),
    ),
    (
        "NaN in a visible key hidden",
        'products = products.masked_fill(garbage, float("nan"))',
        "pass",
        (*SURFACES, "key", True),
        (*LATER, "word", "key", float("nan"), True),
    ),
    (
        "garbage given to the fused kernel",
        "if mask is not None and _needs_care(query, key, value, mask):",
        "if False:",
        (*GARBAGE, False),
        (*LATER, "boolean", "value", float("nan"), False),
    ),
    (
        "garbage where nobody can look noticed in both only",
        "garbage_key = _is_garbage(key) | _is_garbage(value)",
        "garbage_key = _is_garbage(key) & _is_garbage(value)",
        (*BLIND, False),
    ),
    (
        "garbage in queries not cleaned",
        "_products(_cleaned(query), _cleaned(key), scale)",
        "_products(query, _cleaned(key), scale)",
        (*DEAD_QUERY, torch.float32, True),
    ),
    (
        "a vast query not noticed",
        "for tensor in tensors:",
        "for tensor in tensors[1:]:",
        VAST,
    ),
    (
        "broken rows not set aside before the softmax",
        "scores.masked_fill(dead | broken, 0.0)",
        "scores.masked_fill(dead, 0.0)",
        (*LATER, "boolean", "key", float("nan"), True),
    ),
    (
        "gradient of blocked weights not stopped",
        "weights = weights.masked_fill(blocked, 0.0)",
        "weights = weights.masked_fill(dead, 0.0)",
        (*LATER, "boolean", "value", 3e38, True),
    ),
    (
        "a wide mask squeezed into half precision",
        "isinstance(mask, Tensor) and query.dtype in _HALF and",
        "False and",
        (*WIDE_MASK, torch.float16),
    ),
    (
        "garbage where nobody can look not cleaned",
        "if seen is not None:",
        "if False:",
        (*BLIND, False),
    ),
    (
        "fused causal mask from the top left",
        "square = is_causal and num_queries == num_keys",
        "square = is_causal",
        WORD,
        REFERENCE,
    ),
    (
        "two last queries see all",
        "(is_causal and num_queries == 1)",
        "(is_causal and num_queries <= 2)",
        WORD,
    ),
    (
        "scale lost in the fused kernel",
        "scale=_scale_factor(scale, query.shape[-1]),",
        "",
        SCALE,
        REFERENCE,
    ),
    ("dropout lost in the fused kernel", "dropout_p=dropout", "dropout_p=0.0", HEAD_DROPOUT),
)
MASK_FAULTS = _in(
    "parts.masks",
    (
        "causal mask hides the own position",
        "return keys <= queries",
        "return keys < queries",
        DRAWN,
        (*CAUSAL, True),
    ),
    (
        "causal mask shows the next position",
        "return keys <= queries",
        "return keys <= queries + 1",
        DRAWN,
        (*CAUSAL, True),
    ),
    (
        "queries are the first positions",
        "torch.arange(num_keys - num_queries, num_keys, device=device)",
        "torch.arange(num_queries, device=device)",
        DRAWN,
        MASKS,
        WORD,
        PLAIN_STEPS,
    ),
    (
        "anti-causal mask hides the own position",
        "return keys >= queries",
        "return keys > queries",
        DRAWN,
        MASKS,
    ),
    (
        "window one too wide",
        "(keys > queries - window)",
        "(keys >= queries - window)",
        DRAWN,
        MASKS,
    ),
    ("prefix one too long", "device=device) < prefix)", "device=device) <= prefix)", DRAWN, MASKS),
    (
        "later blocks see earlier ones",
        "number.unsqueeze(-1) == number",
        "number.unsqueeze(-1) >= number",
        DRAWN,
        MASKS,
    ),
    ("padding inverted", "< real.unsqueeze(-1))", ">= real.unsqueeze(-1))", DRAWN, MASKS),
    ("padding on the query axis", "[:, None, None, :]", "[:, None, :, None]", DRAWN, MASKS),
    ("both means or", "_joined(operator.and_", "_joined(operator.or_", COMBINED),
    ("either means and", "_joined(operator.or_", "_joined(operator.and_", COMBINED),
    (
        "zeros and ones are let through",
        "if most == 1.0 and least",
        "if most == 9.0 and least",
        ZEROS_AND_ONES,
    ),
    (
        "any bias of one is refused",
        "bool(((mask == 0) | (mask == 1)).all())",
        "True",
        MEANT_TO_BE_ADDED,
    ),
    (
        "either forgets what None allows",
        "if any(mask is None for mask in masks):",
        "if False:",
        COMBINED,
    ),
)
HEAD_FAULTS = _in(
    "parts.heads",
    (
        "heads split without moving the axis",
        "x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads).transpose(-3, -2)",
        "x.reshape(*x.shape[:-2], num_heads, x.shape[-2], x.shape[-1] // num_heads)",
        FIRST_HEAD,
        FLOAT_HEADS,
    ),
    (
        "heads joined without moving the axis",
        "x.transpose(-3, -2).flatten(-2)",
        "x.reshape(*x.shape[:-3], x.shape[-2], -1)",
        FIRST_HEAD,
        FLOAT_HEADS,
    ),
    (
        "shared heads interleaved",
        "x.repeat_interleave(num_heads // num_kv_heads, dim=-3)",
        "x.repeat(*[1] * (x.dim() - 3), num_heads // num_kv_heads, 1, 1)",
        NEIGHBOURS,
        SHARED,
    ),
    (
        "query and key swapped",
        "return attend(query, key, value,",
        "return attend(key, query, value,",
        FLOAT_HEADS,
    ),
    (
        "scale of the heads lost",
        "query, key, value, mask, scale=self.scale,",
        "query, key, value, mask,",
        SHARED,
    ),
    ("dropout in eval", "if self.training:", "if True:", HEAD_DROPOUT),
    ("query not turned", "query = self.position(query, offset)", "pass", ROTARY_HEADS),
    (
        "key turned from the start again",
        "key = self.position(key, offset)",
        "key = self.position(key)",
        ROTARY_STEPS,
    ),
    (
        "query turned from the start again",
        "self.position(query, offset)",
        "self.position(query)",
        ROTARY_STEPS,
    ),
    (
        "mask lost beside ALiBi",
        "self.position.masked(mask,",
        "self.position.masked(None,",
        ALIBI_HEADS,
        ALIBI_STEPS,
    ),
    (
        "mask lost when somebody looks",
        "attention_scores(query, key, mask,",
        "attention_scores(query, key, None,",
        LOOKING,
    ),
    (
        "a changed mask ignored",
        'mask = part.visit("mask", shown)',
        'part.visit("mask", shown)',
        ("test_sites", "test_an_hook_may_change_the_mask"),
    ),
)
POSITION_FAULTS = _in(
    "parts.positions",
    (
        "sine and cosine swapped",
        "(angle.sin(), angle.cos())",
        "(angle.cos(), angle.sin())",
        SINUSOIDS,
    ),
    (
        "sines and cosines in halves",
        "torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)",
        "torch.cat((angle.sin(), angle.cos()), -1)",
        SINUSOIDS,
    ),
    ("wrong frequency", "(-math.log(10000.0) / width)", "(-math.log(1000.0) / width)", SINUSOIDS),
    ("offset of sinusoids ignored", "table[offset:end]", "table[: x.shape[-2]]", ADDED),
    (
        "offset of learned positions ignored",
        "return table[offset : offset + length]",
        "return table[:length]",
        LEARNED,
    ),
    (
        "position before the token",
        "torch.cat((x, rows.expand(*x.shape[:-1], rows.shape[-1])), -1)",
        "torch.cat((rows.expand(*x.shape[:-1], rows.shape[-1]), x), -1)",
        BESIDE,
    ),
    (
        "rotary without its sign",
        "first * cos - second * sin",
        "first * cos + second * sin",
        TURN,
        DISTANCE,
    ),
    (
        "rotary ignores its offset",
        "torch.arange(offset, offset + x.shape[-2], dtype",
        "torch.arange(x.shape[-2], dtype",
        DISTANCE,
        ROTARY_STEPS,
    ),
    (
        "rotary frequency by the whole width",
        "device=x.device) / half)",
        "device=x.device) / x.shape[-1])",
        TURN,
    ),
    (
        "ALiBi draws to the distant",
        "return -alibi_slopes",
        "return alibi_slopes",
        BIAS,
        ALIBI_HEADS,
    ),
    ("slopes start at 1", "(-8.0 * (i + 1) / power)", "(-8.0 * i / power)", SLOPES, ALIBI_HEADS),
    ("slopes borrow the wrong ones", "range(0, 2 * power, 2)", "range(1, 2 * power, 2)", SLOPES),
    (
        "ALiBi takes queries for the first",
        "torch.arange(num_keys - num_queries, num_keys).unsqueeze(-1)",
        "torch.arange(num_queries).unsqueeze(-1)",
        BIAS,
        ALIBI_STEPS,
    ),
    (
        "ALiBi forgets the mask",
        'bias.masked_fill(~tensor, float("-inf"))',
        "bias",
        BIAS_AND_MASK,
        ALIBI_HEADS,
    ),
)
NORM_FAULTS = _in(
    "parts.norms",
    (
        "variance divided by the width less one",
        "centred.square().mean(-1, keepdim=True)",
        "centred.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)",
        LAYER_NORM,
    ),
    (
        "epsilon outside the root",
        "(variance + epsilon).sqrt()",
        "(variance.sqrt() + epsilon)",
        ROOT,
        LAYER_NORM,
    ),
    (
        "mean over the positions",
        "x - x.mean(-1, keepdim=True)",
        "x - x.mean(-2, keepdim=True)",
        LAYER_NORM,
    ),
    (
        "root of the sum, not of the mean",
        "x.square().mean(-1, keepdim=True) + epsilon",
        "x.square().sum(-1, keepdim=True) + epsilon",
        RMS_NORM,
    ),
    (
        "epsilon of the module lost",
        "self.weight, self.bias, self.epsilon)",
        "self.weight, self.bias)",
        LAYER_NORM,
    ),
    ("norms mixed up", 'if kind == "layer":', 'if kind != "layer":', KIND),
    (
        "gain of the module lost",
        "F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)",
        "F.rms_norm(x, self.weight.shape, None, self.epsilon)",
        RMS_NORM,
    ),
)
PROJECTION_FAULTS = _in(
    "parts.projections",
    ("softmax over the other axis", ".softmax(-1)", ".softmax(-2)", FACTORISED),
    ("temperature multiplied", "(a @ b / temperature)", "(a @ b * temperature)", FACTORISED),
    ("gate added", "return mixture * base", "return mixture + base", FACTORISED),
    (
        "heads of a factorised weight interleaved",
        "weight.transpose(-2, -1).flatten(0, 1)",
        "weight.permute(2, 0, 1).flatten(0, 1)",
        EACH_HEAD,
    ),
)
FEED_FORWARD_FAULTS = _in(
    "parts.feed_forward",
    (
        "gelu approximated",
        "F.gelu(inner)",
        'F.gelu(inner, approximate="tanh")',
        (*ACTIVATION, "gelu"),
    ),
    (
        "gate and signal swapped",
        "F.silu(self.gate(x)) * inner",
        "self.gate(x) * F.silu(inner)",
        SWIGLU,
    ),
)
CACHE_FAULTS = _in(
    "parts.cache",
    (
        "new keys over old ones",
        "self._keys[..., self.length : end, :] = key",
        "self._keys[..., : key.shape[-2], :] = key",
        APPENDS,
        PLAIN_STEPS,
    ),
    (
        "the last is lost when room grows",
        "larger[..., : self.length, :] = store[..., : self.length, :]",
        "larger[..., : self.length - 1, :] = store[..., : self.length - 1, :]",
        APPENDS,
        PLAIN_STEPS,
    ),
    (
        "empty room returned",
        "keys[..., : self.length, :], values[..., : self.length, :]",
        "keys, values",
        APPENDS,
    ),
    (
        "one cache for all parts",
        "self._layers.setdefault(name,",
        'self._layers.setdefault("",',
        MIXED,
    ),
    ("room for one more only", "max(needed, 2 * self.length, 16)", "needed", ROOM),
)
BLOCK_FAULTS = _in(
    "parts.blocks",
    ("residual lost", "summed = x + ", "summed = 0 * x + ", PRE, NONE, STREAM),
    (
        "norm after the sum in pre",
        'if self.norm_place == "post":',
        'if self.norm_place == "pre":',
        PRE,
        POST,
    ),
    (
        "norm before attention forgotten",
        "self._read(x, self.norm_attention)",
        "x",
        PRE,
    ),
    (
        "one norm used twice",
        "self._read(x, self.norm_feed_forward)",
        "self._read(x, self.norm_attention)",
        PRE,
    ),
    ("mask lost", "self.attention(read, mask=mask,", "self.attention(read,", PRE, POST, NONE),
    ("memory mask lost", "memory, mask=memory_mask,", "memory,", MEMORY),
    (
        "dropout of the residual lost",
        "dropped(update, self.dropout, is_training=self.training)",
        "update",
        ("test_blocks", "test_the_residual_dropout_acts_on_what_is_added"),
    ),
)
SITE_FAULTS = _in(
    "sites",
    (
        "what a hook returns is ignored",
        "value = _checked(hook.visit(name, value), value, name)",
        "_checked(hook.visit(name, value), value, name)",
        RETURNED,
    ),
    ("the hook stays", "if entry.hook is not hook)", ")", GONE),
)
LINEAR_FAULTS = _in(
    "parts.linear",
    (
        "bias lost on the other path",
        "_linear_pointwise(x, weight, bias,",
        "_linear_pointwise(x, weight, None,",
        ONEDNN,
    ),
    (
        "gradient of the bias averaged",
        "grad_bias = flat.sum(0)",
        "grad_bias = flat.mean(0)",
        ONEDNN,
    ),
)
MUTANTS = [
    *ATTEND,
    *MASK_FAULTS,
    *HEAD_FAULTS,
    *POSITION_FAULTS,
    *NORM_FAULTS,
    *PROJECTION_FAULTS,
    *FEED_FORWARD_FAULTS,
    *CACHE_FAULTS,
    *BLOCK_FAULTS,
    *SITE_FAULTS,
    *LINEAR_FAULTS,
]
