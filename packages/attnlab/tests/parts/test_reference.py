"""The oracle itself, checked by numbers a reader can redo and by central finite differences."""

import doctest
import importlib
import math
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose as numpy_assert_allclose
from numpy.testing import assert_array_equal

from attnlab.errors import WrongUsage
from attnlab.parts.numpy_transformer import NumpyTransformer
from tests import reference as ref

E = math.e
NAN, INF = math.nan, math.inf
# NumPy's own lets NaN pass against NaN.
assert_allclose = partial(numpy_assert_allclose, equal_nan=False)


def numbers(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape)


@pytest.mark.parametrize("name", ["attention", "layers", "masks", "positions"])
def test_every_docstring_example_is_true_and_every_public_function_has_one(name):
    module = importlib.import_module(f"tests.reference.{name}")
    result = doctest.testmod(module)
    assert result.failed == 0
    examples = {
        found.name.split(".")[-1]: found.examples for found in doctest.DocTestFinder().find(module)
    }
    assert [name for name in module.__all__ if not examples[name] and name != "Attention"] == []


def test_the_package_exports_what_its_files_export():
    files = ["attention", "layers", "masks", "positions"]
    names = [n for f in files for n in importlib.import_module(f"tests.reference.{f}").__all__]
    assert sorted(names) == ref.__all__


def test_the_files_of_the_reference_import_numpy_but_not_torch():
    for file in ["__init__", "attention", "layers", "masks", "positions"]:
        path = f"{ref.__path__[0]}/{file}.py"
        with open(path, encoding="utf-8") as source:
            lines = source.read().splitlines()
        assert not [line for line in lines if line.startswith(("import torch", "from torch"))]


def test_softmax_of_zero_and_one_is_one_and_e_over_their_sum():
    assert_allclose(ref.softmax([0.0, 1.0]), [1 / (1 + E), E / (1 + E)], rtol=1e-15)


def test_softmax_does_not_overflow_and_ignores_a_common_shift():
    assert_allclose(ref.softmax([1000.0, 1001.0]), ref.softmax([0.0, 1.0]), rtol=1e-15)


def test_softmax_of_a_row_without_any_choice_is_zero():
    assert_array_equal(ref.softmax([[-INF, -INF], [-INF, 0.0]]), [[0, 0], [0, 1]])
    assert ref.softmax(np.zeros((2, 0))).shape == (2, 0)


def test_entropy_is_zero_for_one_key_and_log_n_for_n_equal_keys():
    assert_allclose(
        ref.entropy([[1, 0, 0, 0], [0.25] * 4, [0] * 4]), [0, math.log(4), 0], atol=1e-15
    )
    assert not np.signbit(ref.entropy([1.0, 0.0]))


def test_identity_keys_make_the_scores_the_query_itself():
    output, weights, scores = ref.attention([[0.0, 1.0]], np.eye(2), [[1.0], [0.0]], scale=False)
    assert_array_equal(scores, [[0, 1]])
    assert_allclose(weights, [[1 / (1 + E), E / (1 + E)]], rtol=1e-15)
    assert_allclose(output, [[1 / (1 + E)]], rtol=1e-15)


def test_the_default_scale_is_one_over_the_root_of_the_width():
    query, key, value = np.ones((1, 4)), np.ones((3, 4)), np.eye(3)
    assert_array_equal(ref.attention(query, key, value).scores, [[2, 2, 2]])
    assert_array_equal(ref.attention(query, key, value, scale=False).scores, [[4, 4, 4]])
    assert_array_equal(ref.attention(query, key, value, scale=0.25).scores, [[1, 1, 1]])
    assert_array_equal(ref.attention(query, key, value, scale=0).scores, [[0, 0, 0]])


def test_attention_agrees_with_three_lines_of_einsum():
    query, key, value = numbers(2, 3, 5, 7), numbers(2, 3, 11, 7), numbers(2, 3, 11, 13)
    output, weights, scores = ref.attention(query, key, value)
    exponentials = np.exp(np.einsum("bhqd,bhkd->bhqk", query, key) / math.sqrt(7))
    expected = exponentials / exponentials.sum(-1, keepdims=True)
    assert_allclose(weights, expected, rtol=1e-13)
    assert_allclose(np.exp(scores), exponentials, rtol=1e-12)
    assert_allclose(output, np.einsum("bhqk,bhke->bhqe", expected, value), rtol=1e-12, atol=1e-14)


def test_leading_dimensions_of_inputs_and_mask_broadcast():
    query, key, value = numbers(2, 1, 5, 3), numbers(7, 11, 3), numbers(11, 13)
    mask = numbers(2, 1, 1, 11) > 0
    output, weights, _ = ref.attention(query, key, value, mask)
    assert output.shape == (2, 7, 5, 13)
    alone = ref.attention(query[1, 0], key[4], value, mask[1, 0])
    assert_array_equal(output[1, 4], alone.output)
    assert_array_equal(weights[1, 4], alone.weights)


def test_a_boolean_mask_equals_a_float_mask_of_zero_and_minus_infinity():
    query, key, value, mask = numbers(5, 3), numbers(7, 3), numbers(7, 2), numbers(5, 7) > 0
    boolean = ref.attention(query, key, value, mask)
    floating = ref.attention(query, key, value, np.where(mask, 0.0, -INF))
    for ours, theirs in zip(boolean, floating, strict=True):
        assert_array_equal(ours, theirs)
    assert_array_equal(boolean.weights[~mask], 0.0)
    assert_array_equal(boolean.scores[~mask], -INF)


def test_a_float_mask_is_added_to_the_scores():
    result = ref.attention([[0.0]], [[1.0], [1.0]], np.eye(2), mask=[[1.0, 2.0]])
    assert_array_equal(result.scores, [[1, 2]])
    assert_allclose(result.output, [[1 / (1 + E), E / (1 + E)]], rtol=1e-15)


def test_a_query_that_may_attend_to_nothing_gets_zeros():
    mask = [[True, True], [False, False]]
    output, weights, scores = ref.attention(np.eye(2), np.eye(2), [[NAN], [INF]], mask)
    assert_array_equal(weights[1], [0, 0])
    assert_array_equal(output[1], [0])
    assert_array_equal(scores[1], [-INF, -INF])
    assert (
        ref.attention(np.eye(2), np.zeros((0, 2)), np.zeros((0, 3))).output.tolist()
        == [[0, 0, 0]] * 2
    )


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_a_blocked_key_and_value_never_reach_the_query(poison, kind):
    query, key, value = numbers(2, 3, 4), numbers(2, 5, 4), numbers(2, 5, 3)
    mask = ref.causal_mask(3, 5)
    clean = ref.attention(query, key, value, mask)
    key[..., 4, :] = value[..., 4, :] = poison
    dirty = ref.attention(
        query, key, value, mask if kind == "boolean" else np.where(mask, 0.0, -INF)
    )
    for before, after in zip(clean, dirty, strict=True):
        assert_array_equal(before[:, :2], after[:, :2])
    assert np.isnan(dirty.output[:, 2]).any()


def test_a_visible_nan_score_leaves_the_blocked_weights_at_zero():
    weights = ref.attention([[NAN]], [[1.0], [1.0]], np.eye(2), [[True, False]]).weights
    assert_array_equal(weights, [[NAN, 0]])


def finite_differences(loss, x, step=1e-5):
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (loss(up) - loss(down)) / (2 * step)
    return gradient


MASKS = {
    "none": None,
    "boolean with a dead row": ref.causal_mask(3, 5) & np.array([[True], [False], [True]]),
    "float with a block": np.where(numbers(2, 3, 5, seed=1) > 0.5, -INF, numbers(2, 3, 5, seed=2)),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("scale", [None, False, 0.3])
@pytest.mark.parametrize("shared_keys", [False, True])
def test_gradients_agree_with_central_differences(mask, scale, shared_keys):
    key_leading = (1,) if shared_keys else (2,)
    inputs = [numbers(2, 3, 4), numbers(*key_leading, 5, 4), numbers(5, 2)]
    grad_output = numbers(2, 3, 2)
    gradients = ref.attention_gradients(*inputs, mask, scale, grad_output)
    for number, gradient in enumerate(gradients):

        def loss(x, number=number):
            changed = [*inputs[:number], x, *inputs[number + 1 :]]
            return (ref.attention(*changed, mask, scale).output * grad_output).sum()

        assert gradient.shape == inputs[number].shape
        assert_allclose(gradient, finite_differences(loss, inputs[number]), rtol=1e-7, atol=1e-9)


def test_gradients_of_two_equal_keys_are_those_of_the_docstring():
    query, key, value = [[0.0]], [[1.0], [0.0]], [[4.0], [0.0]]
    gradients = ref.attention_gradients(query, key, value, None, False, [[1.0]])
    assert [g.ravel().tolist() for g in gradients] == [[1], [0, 0], [0.5, 0.5]]


def test_nothing_flows_between_a_query_and_a_key_it_may_not_attend_to():
    query, key, value, grad_output = numbers(3, 4), numbers(5, 4), numbers(5, 2), numbers(3, 2)
    mask = np.ones((3, 5), bool)
    mask[0, 4] = mask[1] = False
    clean = ref.attention_gradients(query, key, value, mask, None, grad_output)
    query[1] = grad_output[1] = NAN  # the dead query reaches no key
    dirty = ref.attention_gradients(query, key, value, mask, None, grad_output)
    for before, after in zip(clean, dirty, strict=True):
        assert_array_equal(before, after)
    key[4] = value[4] = NAN  # reaches query 2, the only one that sees it
    grad_query = ref.attention_gradients(query, key, value, mask, None, grad_output)[0]
    assert_array_equal(grad_query[:2], clean[0][:2])
    assert np.isnan(grad_query[2]).all()


def test_splitting_and_joining_heads_are_inverses_and_heads_are_neighbouring_channels():
    x = numbers(2, 5, 21)
    heads = ref.split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 7)
    assert_array_equal(heads[1, 2], x[1, :, 14:])
    assert_array_equal(ref.join_heads(heads), x)


def test_multi_head_attention_with_identity_weights_is_attention_head_by_head():
    x, y, eye = numbers(2, 3, 6), numbers(2, 5, 6), np.eye(6)
    result = ref.multi_head_attention(x, y, eye, eye, eye, eye, 2, mask=ref.causal_mask(3, 5))
    for h, channels in enumerate([slice(0, 3), slice(3, 6)]):
        xs, ys = x[..., channels], y[..., channels]
        alone = ref.attention(xs, ys, ys, ref.causal_mask(3, 5))
        assert_allclose(result.output[..., channels], alone.output, rtol=1e-14)
        assert_array_equal(result.weights[:, h], alone.weights)


def test_multi_head_attention_applies_every_weight_as_out_in_and_every_bias():
    # One key only: the weight is 1 whatever the scores, so the output is a chain of two linear
    # maps.
    x, w_value, w_output = numbers(1, 3), numbers(4, 3), numbers(5, 4)
    w_query, w_key = numbers(2, 3, seed=1), numbers(2, 3, seed=2)
    biases = {"query": [1, 2], "key": [3, 4], "value": numbers(4), "output": numbers(5)}
    result = ref.multi_head_attention(
        x, x, w_query, w_key, w_value, w_output, 2, biases=biases, scale=False
    )
    expected = w_output @ (w_value @ x[0] + biases["value"]) + biases["output"]
    assert_allclose(result.output, [expected], rtol=1e-13)
    score = (w_query @ x[0] + [1, 2]) * (w_key @ x[0] + [3, 4])
    assert_allclose(result.scores[:, 0, 0], score, rtol=1e-13)


def test_grouped_queries_share_key_heads_in_order():
    # Four query heads of width 1, two key heads whose single values are 10 and 20.
    w_query, w_key_value = np.ones((4, 1)), np.array([[10.0], [20.0]])
    result = ref.multi_head_attention(
        [[1.0]], [[1.0]], w_query, w_key_value, w_key_value, np.eye(4), 4, 2
    )
    assert_array_equal(result.output, [[10, 10, 20, 20]])


def test_grouped_queries_equal_full_heads_with_repeated_key_weights():
    x, w_query, w_output = numbers(2, 5, 12), numbers(12, 12), numbers(12, 12, seed=1)
    w_key, w_value = numbers(6, 12, seed=1), numbers(6, 12, seed=2)
    grouped = ref.multi_head_attention(x, x, w_query, w_key, w_value, w_output, 4, 2)
    full_key, full_value = (
        np.repeat(w.reshape(2, 3, 12), 2, axis=0).reshape(12, 12) for w in (w_key, w_value)
    )
    full = ref.multi_head_attention(x, x, w_query, full_key, full_value, w_output, 4)
    assert_allclose(grouped.output, full.output, rtol=1e-12, atol=1e-13)


def test_masks_are_boolean_and_the_queries_are_the_last_positions():
    assert ref.causal_mask(2).dtype == np.bool_
    assert_array_equal(ref.causal_mask(3), np.tri(3, dtype=bool))
    assert_array_equal(ref.causal_mask(2, 5), np.tri(5, dtype=bool)[3:])
    assert_array_equal(ref.anti_causal_mask(2, 5), np.tri(5, dtype=bool).T[3:])
    assert_array_equal(ref.sliding_window_mask(2, 3, 5), ref.sliding_window_mask(5, 3)[3:])


def test_a_window_of_one_is_the_diagonal_and_a_wide_one_is_causal():
    assert_array_equal(ref.sliding_window_mask(4, 1), np.eye(4, dtype=bool))
    assert_array_equal(ref.sliding_window_mask(4, 9), ref.causal_mask(4))
    assert ref.sliding_window_mask(7, 3).sum(1).tolist() == [1, 2, 3, 3, 3, 3, 3]


def test_a_prefix_of_nothing_is_causal_and_of_everything_sees_everything():
    assert_array_equal(ref.prefix_mask(4, 0), ref.causal_mask(4))
    assert ref.prefix_mask(4, 4).all()
    assert ref.prefix_mask(4, 2).sum(1).tolist() == [2, 2, 3, 4]


def test_blocks_see_themselves_and_padding_is_hidden():
    expected = np.zeros((5, 5), bool)
    expected[:2, :2] = expected[2:, 2:] = True
    assert_array_equal(ref.block_mask([2, 0, 3]), expected)
    padding = ref.padding_mask([2, 0], 3)
    assert padding.shape == (2, 1, 1, 3)
    assert_array_equal(padding[:, 0, 0], [[True, True, False], [False, False, False]])


def test_sinusoids_are_the_formula_of_the_paper_and_odd_widths_end_on_a_sine():
    encoding = ref.sinusoidal_positions(11, 5)
    assert_array_equal(encoding[0], [0, 1, 0, 1, 0])
    assert_allclose(
        encoding[7, 2:4], [math.sin(7 / 10000**0.4), math.cos(7 / 10000**0.4)], rtol=1e-14
    )
    assert_allclose(encoding[7, 4], math.sin(7 / 10000**0.8), rtol=1e-14)


def test_rotary_turns_the_pair_i_and_i_plus_half_by_position_times_frequency():
    first, third = ref.rotary(
        np.eye(4)[[0, 1]], [math.pi / 2, math.pi / 2 * 100]
    )  # 10000^(-2/4) = 1/100
    assert_allclose(first, [0, 0, 1, 0], atol=1e-15)
    assert_allclose(third, [0, 0, 0, 1], atol=1e-14)


def test_rotary_keeps_lengths_and_products_see_only_the_distance():
    query, key = numbers(1, 6), numbers(1, 6, seed=1)
    products = [(ref.rotary(query, [p + 3]) * ref.rotary(key, [p])).sum() for p in [0, 5, 1000]]
    assert_allclose(products, products[0], rtol=1e-11)
    assert_allclose(np.linalg.norm(ref.rotary(query, [17])), np.linalg.norm(query), rtol=1e-14)
    assert_array_equal(ref.rotary(query, [0]), query)


def test_rotary_takes_positions_per_batch_row():
    x = numbers(2, 3, 5, 4)
    positions = np.arange(10).reshape(2, 1, 5)
    assert_array_equal(ref.rotary(x, positions)[1, 2], ref.rotary(x[1, 2], np.arange(5, 10)))


def test_alibi_slopes_are_those_of_the_paper_for_eight_and_of_its_code_for_twelve_heads():
    assert_array_equal(ref.alibi_slopes(8), [2.0**-h for h in range(1, 9)])
    assert_array_equal(ref.alibi_slopes(1), [2.0**-8])
    extra = [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    assert_allclose(ref.alibi_slopes(12), [*ref.alibi_slopes(8), *extra], rtol=1e-15)


def test_alibi_lowers_scores_by_slope_times_distance_on_both_sides():
    bias = ref.alibi_bias(8, 2, 4)
    assert_array_equal(bias[0], [[-1, -0.5, 0, -0.5], [-1.5, -1, -0.5, 0]])
    assert_array_equal(bias[7] * 128, bias[0])
    assert not np.signbit(bias[0, 0, 2])


def test_layer_norm_divides_by_the_biased_deviation_with_epsilon_inside_the_root():
    assert_array_equal(ref.layer_norm([1.0, 3.0], [2.0, 3.0], [10.0, 20.0], epsilon=0.0), [8, 23])
    assert_array_equal(ref.layer_norm([1.0, 3.0], epsilon=3.0), [-0.5, 0.5])  # sqrt(1 + 3) = 2
    assert_array_equal(ref.layer_norm([[5.0, 5.0]]), [[0, 0]])
    assert_allclose(
        ref.layer_norm([0.0, 2e-3]), np.array([-1, 1]) * 1e-3 / math.sqrt(1.1e-5), rtol=1e-13
    )


def test_rms_norm_divides_by_the_root_mean_square_with_epsilon_inside_the_root():
    assert_allclose(ref.rms_norm([1.0, 7.0], [10.0, 5.0], epsilon=0.0), [2, 7], rtol=1e-15)
    assert_allclose(ref.rms_norm([1.0, 7.0], epsilon=75.0), [0.1, 0.7], rtol=1e-15)


def test_activations_have_their_known_values_and_do_not_overflow():
    assert_array_equal(ref.relu([[-1.0], [2.0]]), [[0], [2]])
    assert_allclose(ref.gelu([1.0, -40.0, 40.0]), [(1 + math.erf(0.5**0.5)) / 2, 0, 40], rtol=1e-15)
    assert_allclose(ref.silu([1.0, -1e4, 1e4]), [E / (1 + E), 0, 1e4], rtol=1e-15)
    assert ref.gelu(np.zeros((0, 3))).shape == (0, 3)


def test_feed_forward_adds_its_biases_and_knows_its_activations():
    w_in, w_out = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 10.0, 100.0]]
    assert_array_equal(ref.feed_forward([1.0, -2.0], w_in, w_out, [0, 3, 0], [1000]), [1011])
    for name in ["gelu", "silu"]:
        by_hand = getattr(ref, name)(numbers(3, 2) @ np.array(w_in).T) @ np.array(w_out).T
        assert_allclose(
            ref.feed_forward(numbers(3, 2), w_in, w_out, activation=name), by_hand, rtol=1e-14
        )


def test_swiglu_gates_the_signal_with_silu():
    assert_allclose(
        ref.swiglu([1.0, 2.0], [[1.0, 0.0]], [[0.0, 5.0]], [[1.0]]), [10 * E / (1 + E)], rtol=1e-15
    )


def test_a_strict_factorised_weight_is_the_softmax_and_a_gated_one_multiplies_its_base():
    a, b = [[1.0], [0.0]], [[0.0, 2.0]]
    strict = ref.factorised_weight(a, b, temperature=2.0)
    assert_allclose(strict, [[1 / (1 + E), E / (1 + E)], [0.5, 0.5]], rtol=1e-15)
    assert_array_equal(ref.factorised_weight(a, b, 2.0, np.full((2, 2), 3.0)), strict * 3)
    assert ref.factorised_weight(numbers(3, 5, 2), numbers(3, 2, 7)).shape == (3, 5, 7)


def test_cross_entropy_of_equal_logits_is_log_n_and_is_the_mean_over_all_rows():
    assert_allclose(
        ref.cross_entropy(np.zeros((2, 3, 5)), np.ones((2, 3), int)), math.log(5), rtol=1e-15
    )
    assert_allclose(
        ref.cross_entropy([[0, math.log(3)], [1000, 0]], [1, 0]), math.log(4 / 3) / 2, rtol=1e-15
    )


def random_head(seed, pos_dim=None, longest=6):
    source = np.random.default_rng(seed)
    width = 3 + (pos_dim or 0)
    Km, Qm, Vm = (source.normal(size=(width, size)) for size in (5, 5, 2))
    return NumpyTransformer(
        Km, Qm, Vm, None if pos_dim is None else source.normal(size=(longest, pos_dim))
    )


@pytest.mark.parametrize("pos_dim", [None, 4])
def test_a_single_head_is_attention_of_concatenated_rows(pos_dim):
    head, x = random_head(0, pos_dim), numbers(6, 3)
    rows = x if pos_dim is None else np.hstack([x, head.pos])
    wanted = ref.attention(rows @ head.Qm, rows @ head.Km, rows @ head.Vm)
    panels = head.panels(x)
    assert_allclose(panels.attention, wanted.weights, rtol=0, atol=1e-14)
    assert_allclose(panels.output, wanted.output, rtol=0, atol=1e-14)
    assert_array_equal(head(x), panels.output)


@pytest.mark.parametrize("gain", [1.0, 36.0, 1e2, 1e4, 1e150])
def test_a_single_head_does_not_break_at_any_gain(gain):
    head = NumpyTransformer(gain * np.eye(2), gain * np.eye(2), np.eye(2))
    assert_allclose(head(np.eye(2)).sum(-1), [1, 1], rtol=1e-15)
    if gain > 1:
        assert_allclose(head(np.eye(2)), np.eye(2), atol=1e-100)


def test_a_single_head_that_overflows_says_nan_and_nothing_else():
    head = NumpyTransformer([[1e200]], [[1e200]], [[1.0]])
    assert np.isnan(head([[1.0]])).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: NumpyTransformer([[1.0]], [[1.0, 2.0]], [[1.0]]),
            "Km and Qm must have one shape",
        ),
        (lambda: NumpyTransformer(np.eye(2), np.eye(2), np.eye(3)), "Vm .* as many rows"),
        (
            lambda: NumpyTransformer(np.eye(2), np.eye(2), np.eye(2), pos=np.eye(2)),
            "more rows than pos",
        ),
        (
            lambda: NumpyTransformer(np.eye(2), np.eye(2), np.zeros((2, 0))),
            "Vm must be a matrix",
        ),
        (
            lambda: random_head(0)(numbers(2, 4)),
            r"x must have shape \(length, 3\), length at least 1; got \(2, 4\)",
        ),
        (lambda: random_head(0)(numbers(0, 3)), "length at least 1"),
        (
            lambda: random_head(0, 4)(numbers(7, 3)),
            "there are 6 positions; got an input of length 7",
        ),
    ],
)
def test_a_single_head_refuses_what_cannot_be(call, message):
    with pytest.raises(WrongUsage, match=message):
        call()
