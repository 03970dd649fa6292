"""`attend`: what it promises beyond the formula."""

import itertools
import math
from unittest import mock

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.parts.attend import attend, attention_scores, attention_weights, weighted_values
from attnlab.parts.heads import multi_head_attention
from attnlab.parts.positions import Alibi
from tests.sampling import sampled

from .cases import DTYPES, HALVES, as_tensor, random_case
from .closeness import assert_close, assert_same

E = math.e
NAN, INF = math.nan, math.inf
PATHS = pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
ROW_SUM = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-6, torch.float16: 1e-6}


def normal(*shape, seed=0, dtype=torch.float32):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=source, dtype=torch.float64).to(dtype)


def tensors(*lead, queries=3, keys=7, dtype=torch.float32):
    """Queries and keys 5 wide, values 11 wide."""
    shapes = ((queries, 5), (keys, 5), (keys, 11))
    return [normal(*lead, *shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


@PATHS
def test_identity_keys_give_one_and_e_over_their_sum(need_weights):
    eye = torch.eye(2, dtype=torch.float64)
    value = torch.tensor([[10.0], [20.0]], dtype=torch.float64)
    result = attend(eye[1:], eye, value, scale=False, need_weights=need_weights)
    assert_close(result.output, [[(10 + 20 * E) / (1 + E)]], 1e-14)
    if need_weights:
        assert_same(result.scores, [[0, 1]])
        assert_close(result.weights, [[1 / (1 + E), E / (1 + E)]], 1e-15)
    else:
        assert result.weights is None
        assert result.scores is None


def test_the_scale_is_one_over_the_root_of_the_width_unless_another_is_asked_for():
    query, key = torch.ones(1, 4), torch.ones(1, 4)
    for scale, score in ((None, 2.0), (True, 2.0), (False, 4.0), (0.25, 1.0), (1, 4.0), (0, 0.0)):
        assert attention_scores(query, key, scale=scale).item() == score
    query, key, value = normal(3, 5), normal(7, 5, seed=1), normal(7, 2, seed=2)
    for scale in (None, True, False, 0.25):
        fused = attend(query, key, value, scale=scale, need_weights=False).output
        assert_close(fused, attend(query, key, value, scale=scale).output, 1e-6)


def test_three_small_functions_make_the_large_one():
    (query, key, value), mask = tensors(2), normal(3, 7) > 0
    result = attend(query, key, value, mask)
    assert_same(attention_weights(attention_scores(query, key, mask)), result.weights)
    assert_same(weighted_values(result.weights, value), result.output)


def test_weights_are_zero_where_blocked_and_live_rows_of_them_sum_to_one():
    rows = blocked = 0
    for seed in range(54):
        case = random_case(seed)
        visible = torch.from_numpy(case.visible.copy())
        for dtype in DTYPES:
            result = attend(*case.tensors(dtype), case.torch_mask(dtype), scale=case.scale)
            weights = result.weights
            assert weights.dtype == (torch.float32 if dtype in HALVES else dtype)
            is_live = case.visible.any(-1).astype(float)
            assert_close(weights.double().sum(-1), is_live, ROW_SUM[dtype], f"sum, {dtype}")
            assert (weights >= 0).all()
            assert (weights[~visible] == 0).all()
            assert (result.scores[~visible] == -INF).all()
            rows += weights[..., 0].numel()
            blocked += int((~visible).sum())
    assert min(rows, blocked) > 5_000


@PATHS
def test_a_query_that_may_look_at_nothing_gets_zeros_forward_and_backward(need_weights):
    dead_rows = 0
    for seed in range(9):
        kind = ("dead rows", "bias that blocks", "density")[seed % 3]
        case = random_case(seed, kind=kind, largest=9)
        dead = torch.from_numpy(~case.visible.any(-1))
        if case.query.size == 0:  # torch's fused kernel gives a float mask no gradient then
            continue
        for dtype in DTYPES:
            query, key, value = case.tensors(dtype, grad=True)
            mask = case.torch_mask(dtype)
            leaves = [query, key, value]
            leaves += [mask.requires_grad_()] if mask.is_floating_point() else []
            options = {"scale": case.scale, "need_weights": need_weights}
            with torch.autograd.set_detect_anomaly(True):
                output = attend(query, key, value, mask, **options).output
                quietly_backward(output, as_tensor(case.grad_output, dtype))
            assert (output[dead] == 0).all()
            for leaf in leaves:
                assert leaf.grad.isfinite().all()
            assert (query.grad[dead] == 0).all()
        dead_rows += int(dead.sum())
    assert dead_rows > 50


def quietly_backward(output, grad):
    """Go backward under anomaly detection; what it finds is a failed claim, not a crash."""
    try:
        output.backward(grad)
    except RuntimeError as error:
        raise AssertionError(f"anomaly mode complains: {error}") from error


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_on_scores_of_dead_rows_is_zero(dtype):
    scores = torch.tensor([[0.0, 1.0], [-INF, -INF], [3.0, -INF]], dtype=dtype, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        weights = attention_weights(scores)
        quietly_backward(weights, torch.tensor([[1.0, 2.0]] * 3, dtype=dtype))
    assert_same(weights[1:], [[0, 0], [1, 0]])
    assert_same(scores.grad[1:], [[0, 0], [0, 0]])
    assert scores.grad[0, 1] > 0


@PATHS
def test_no_keys_and_no_queries_give_zeros_and_nothing(need_weights):
    output = attend(*tensors(2, keys=0), need_weights=need_weights).output
    assert_same(output, torch.zeros(2, 3, 11))
    assert attend(*tensors(2, queries=0), need_weights=need_weights).output.shape == (2, 0, 11)


@PATHS
@pytest.mark.parametrize("poison", [NAN, INF, -INF, 1e30], ids=str)
def test_garbage_in_a_key_and_value_that_nobody_may_see_changes_nothing(poison, need_weights):
    for seed in range(20):
        case = random_case(seed, kind=("padding", "density")[seed % 2], largest=7)
        hidden = torch.from_numpy(~case.visible.any(-2))  # (..., key): seen by no query of its row
        results = {}
        for filling in (0.0, poison):
            query, key, value = case.tensors(torch.float32)
            key, value = (
                x.expand(*hidden.shape, -1).masked_fill(hidden.unsqueeze(-1), filling)
                for x in (key, value)
            )
            for leaf in (query, key, value):
                leaf.requires_grad_()
            output = attend(query, key, value, case.torch_mask(), need_weights=need_weights).output
            output.backward(as_tensor(case.grad_output, torch.float32))
            results[filling] = (output, query.grad, key.grad, value.grad)
        bounds = (0.0 if need_weights else 2e-6, 2e-5, 2e-5, 2e-5)
        for clean, dirty, bound in zip(results[0.0], results[poison], bounds, strict=True):
            assert_close(dirty, clean, bound, "garbage")


@PATHS
@pytest.mark.parametrize("dtype", DTYPES)
def test_garbage_stays_blocked_in_every_precision(dtype, need_weights):
    mask = torch.tensor([[True, True, False, True, False]])
    for poison in (NAN, INF, torch.finfo(dtype).max / 2):
        outputs = []
        for filling in (0.0, poison):
            query, key, value = (normal(2, 5, 7, seed=s, dtype=dtype) for s in range(3))
            key[:, ~mask[0]] = value[:, ~mask[0]] = filling
            outputs.append(attend(query, key, value, mask, need_weights=need_weights).output)
        assert_close(outputs[1], outputs[0], 1e-2 if dtype in HALVES else 2e-6)


@PATHS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("poison", [NAN, INF], ids=str)
def test_garbage_in_a_query_that_sees_nothing_harms_nothing(poison, dtype, need_weights):
    query, key, value = (normal(2, 3, 7, seed=seed, dtype=dtype) for seed in range(3))
    query[:, 1] = poison
    mask = torch.ones(3, 3).bool()
    mask[1] = False
    leaves = [x.requires_grad_() for x in (query, key, value)]
    output = attend(*leaves, mask, need_weights=need_weights).output
    output.sum().backward()
    assert_same(output[:, 1].float(), torch.zeros(2, 7))
    assert_same(query.grad[:, 1].float(), torch.zeros(2, 7))
    assert all(torch.isfinite(leaf.grad).all() for leaf in leaves)
    transformed = torch.func.vmap(
        lambda q, k, v: attend(q, k, v, mask, need_weights=need_weights).output
    )
    assert_same(transformed(*(leaf.detach() for leaf in leaves))[:, 1].float(), torch.zeros(2, 7))


def test_a_vast_query_and_a_vast_blocked_key_do_not_overflow_the_fused_kernel():
    query, key, value = torch.full((1, 7), 1e25), torch.full((3, 7), 1e-30), normal(3, 7)
    key[2] = 1e14
    mask = torch.tensor([[True, True, False]])
    for need_weights in (True, False):
        output = attend(query, key, value, mask, need_weights=need_weights).output
        assert_close(output, value[:2].mean(0)[None], 1e-6)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_wide_float_mask_means_the_same_to_half_precision_on_both_paths(dtype):
    query, key, value = (normal(3, 7, seed=seed, dtype=dtype) for seed in range(3))
    for mask in (torch.full((3, 3), -1e9), torch.eye(3) * 1e9):
        explicit, fused = (
            attend(query, key, value, mask, need_weights=need).output for need in (True, False)
        )
        assert_close(fused, explicit, 2e-2)


@PATHS
@pytest.mark.parametrize("which", ["query", "key", "value"])
def test_a_nan_that_is_attended_to_surfaces(which, need_weights):
    for mask in (None, torch.ones(3, 5, dtype=torch.bool)):
        given = dict(zip(("query", "key", "value"), tensors(keys=5), strict=True))
        given[which][1, 0] = NAN
        output = attend(**given, mask=mask, need_weights=need_weights).output
        affected = output[1] if which == "query" else output[:, 0]
        assert affected.isnan().all()
        if which == "query":
            assert output[[0, 2]].isfinite().all()


@PATHS
def test_garbage_under_vmap_stays_blocked_too(need_weights):
    garbage_stays_blocked(lambda run, *given: torch.func.vmap(run)(*given), need_weights)


@PATHS
def test_garbage_where_nobody_can_look_at_the_numbers_stays_blocked_too(need_weights):
    # As on a GPU or in a compiled graph.
    with mock.patch.dict(attend.__globals__, _values_readable=lambda tensor: False):
        garbage_stays_blocked(lambda run, *given: run(*given), need_weights)


@PATHS
@pytest.mark.parametrize("poison", [NAN, INF, 3e38], ids=str)
def test_garbage_that_later_queries_see_harms_no_earlier_one(poison, need_weights):
    garbage_stays_blocked(
        lambda run, *given: run(*given), need_weights, poison=poison, with_gradients=True
    )


def garbage_stays_blocked(call, need_weights, *, poison=NAN, with_gradients=False):
    """Garbage in key 3 is seen by the queries 3 and 4 alone, also going backward."""
    causal = torch.ones(5, 5).tril().bool()
    for mask, where in itertools.product(
        ("causal", causal, torch.zeros(5, 5).masked_fill(~causal, -INF)),
        ("key", "value", "key and value"),
    ):

        def run(q, k, v, mask=mask):
            return attend(q, k, v, mask, need_weights=need_weights).output

        results = []
        for filling in (0.0, poison):
            given = dict(zip(("query", "key", "value"), tensors(3, queries=5, keys=5), strict=True))
            for name in ("key", "value"):
                if name in where:
                    given[name][:, 3] = filling
            leaves = [tensor.requires_grad_(with_gradients) for tensor in given.values()]
            output = call(run, *leaves)
            results.append([output[:, :3]])
            if with_gradients:
                output[:, :3].sum().backward()
                results[-1] += [leaf.grad[:, :3] for leaf in leaves]
        if math.isnan(poison):
            assert output[:, 3:].isnan().all(), "a NaN that is looked at must not be hidden"
        for number, (clean, dirty) in enumerate(zip(*results, strict=True)):
            assert_close(dirty, clean, 2e-5 if number else 2e-6, "garbage, causal")


@pytest.mark.parametrize(
    "mask", [None, "causal", torch.ones(3, 3).tril().bool()], ids=["none", "word", "tensor"]
)
def test_the_fused_kernel_runs_when_nobody_asks_for_weights_and_only_then(mask):
    kernel = torch.nn.functional.scaled_dot_product_attention
    query = normal(2, 3, 5)
    with mock.patch("torch.nn.functional.scaled_dot_product_attention", wraps=kernel) as fused:
        attend(query, query, query, mask)
        fused.assert_not_called()
        attend(query, query, query, mask, need_weights=False)
    assert fused.call_count == 1
    assert fused.call_args.kwargs["is_causal"] == isinstance(mask, str)


@PATHS
@pytest.mark.parametrize("size", [1e8, 1e15, 1e30])
def test_huge_scores_stay_finite_and_the_largest_wins(size, need_weights):
    for seed in range(20):
        case = random_case(seed, kind=("none", "causal", "density")[seed % 3], largest=7)
        query, key, value = case.tensors(torch.float32)
        query = query * size
        result = attend(query, key, value, case.torch_mask(), need_weights=need_weights)
        scores = attention_scores(query, key, case.torch_mask()).double()
        assert_close(result.output, attention_weights(scores) @ value.double(), 1e-5)
        if need_weights:
            assert_close(result.weights.double().sum(-1), case.visible.any(-1).astype(float), 1e-6)


@PATHS
def test_a_float_mask_is_added_to_the_scores_whatever_its_precision(need_weights):
    value = torch.eye(2)
    for dtype in DTYPES:
        mask = torch.tensor([[-1.0, 0.0]], dtype=dtype)  # as [[0, 1]] would
        query, key = torch.zeros(1, 1), torch.ones(2, 1)
        output = attend(query, key, value, mask, need_weights=need_weights).output
        assert output.dtype == torch.float32
        assert_close(output, [[1 / (1 + E), E / (1 + E)]], 1e-6)


def _attend(mask, **more):
    return attend(*tensors(2), mask, **more).output


def _refusal(call):
    try:
        call()
    except WrongUsage as error:
        return str(error)
    return ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@PATHS
def test_a_float_mask_of_zeros_and_ones_is_refused_with_what_to_give_instead(need_weights, dtype):
    mask = (normal(3, 7) > 0).to(dtype)
    for wrong in (mask, torch.ones(3, 7, dtype=dtype)):
        said = _refusal(lambda wrong=wrong: _attend(wrong, need_weights=need_weights))
        assert "added to the scores. If its ones mean 'may attend', give mask.bool()" in said
    boolean, added = (_attend(each, need_weights=need_weights) for each in (mask.bool(), mask - 1))
    assert float((boolean - added).abs().max()) > 0.01
    layer = multi_head_attention(8, 2, position=Alibi(2) if need_weights else None)
    said = _refusal(lambda: layer(normal(2, 7, 8), mask=(normal(7, 7) > 0).to(dtype)))
    assert "give mask - 1, which makes the same weights" in said


def test_what_may_be_meant_to_be_added_is_added():
    learned = torch.ones(3, 7, requires_grad=True)  # a bias that is learned
    assert_close(_attend(learned), _attend(None), 1e-6)
    assert_close(_attend(torch.zeros(3, 7)), _attend(None), 1e-6)
    bias = torch.cat((torch.ones(3, 6), torch.full((3, 1), 2.0)), 1)
    assert_close(_attend(bias), _attend(bias - 2), 1e-6)
    half = torch.tensor([0.0, 0.5, 1.0, 1.0, 0.0, 0.0, 1.0])
    assert not _refusal(lambda: _attend(half))
    assert_close(_attend(half), _attend(half - 1), 1e-6)


def test_dropout_leaves_the_returned_weights_alone_and_the_mean_output_too():
    query, key, value = tensors(2)
    plain = attend(query, key, value)
    torch.manual_seed(0)
    dropped = attend(query, key, value, dropout=0.3)
    assert_same(dropped.weights, plain.weights)
    assert (dropped.output - plain.output).abs().max() > 0.1
    many = [tensor.expand(4000, -1, -1, -1) for tensor in (query, key, value)]
    for need_weights in (True, False):  # a draw's spread is below 0.6, so the mean's is below 0.01
        mean = attend(*many, dropout=0.3, need_weights=need_weights).output.mean(0)
        assert_close(mean, plain.output, 0.05, "mean of many draws with dropout")


@pytest.mark.parametrize("mask", [None, "causal", "dead row", "float"])
@PATHS
def test_gradients_are_those_of_finite_differences(mask, need_weights):
    query, key, value = (each[..., :2] for each in tensors(1, keys=5, dtype=torch.float64))
    visible = torch.tensor([[True, False, True, True, False], [False] * 5, [True] * 5])
    chosen = {
        "dead row": visible,
        "float": normal(3, 5, dtype=torch.float64).masked_fill(~visible, -INF),
    }.get(mask, mask)

    def output(q, k, v):
        return attend(q, k, v, chosen, need_weights=need_weights).output

    leaves = [x.requires_grad_() for x in (query, key, value)]
    assert torch.autograd.gradcheck(output, leaves, raise_exception=False)
    if need_weights:
        assert torch.autograd.gradgradcheck(output, leaves, raise_exception=False)
    if mask == "float":
        bias = normal(3, 5, dtype=torch.float64).requires_grad_()
        of_bias = lambda b: attend(query, key, value, b, need_weights=need_weights).output  # noqa: E731
        assert torch.autograd.gradcheck(of_bias, bias, raise_exception=False)


@PATHS
def test_vmap_over_a_leading_axis_equals_a_loop(need_weights):
    query, key, value = tensors(7, 2, keys=3)
    dead_row = torch.tensor([[True, False, True], [False] * 3, [True] * 3])
    for mask in (None, "causal", dead_row, torch.zeros(3, 3).masked_fill(~dead_row, -INF)):

        def run(q, k, v, mask=mask):
            return attend(q, k, v, mask, need_weights=need_weights).output

        loop = torch.stack([run(*each) for each in zip(query, key, value, strict=True)])
        assert_close(torch.func.vmap(run)(query, key, value), loop, 2e-6)
    assert torch.func.vmap(attend)(query, key, value).weights.shape == (7, 2, 3, 3)


def fits(*leading):
    try:
        torch.broadcast_shapes(*leading)
    except RuntimeError:
        return False
    return True


def test_leading_axes_of_any_number_give_the_same_on_both_paths():
    axes = [(), (2,), (3, 2), (2, 3, 1)]
    failed = []
    for q, k, v, m in itertools.product(axes, repeat=4):
        if not fits(q, k, v, m) or len(m) > max(len(q), len(k), len(v)):
            continue
        query, key, value = normal(*q, 3, 4), normal(*k, 5, 4, seed=1), normal(*v, 5, 6, seed=2)
        visible = normal(*m, 3, 5, seed=3) > -1.0
        leading = torch.broadcast_shapes(q, k, v)
        if any(here not in (1, there) for here, there in zip(m[::-1], leading[::-1], strict=False)):
            continue
        visible[..., 0] = True
        for mask in (visible, torch.zeros(visible.shape).masked_fill(~visible, -INF)):
            expected = attend(query, key, value, mask).output
            try:
                found = attend(query, key, value, mask, need_weights=False).output
            except RuntimeError as error:
                failed.append((q, k, v, m, str(error)))
                continue
            assert_close(found, expected, 2e-6)
    assert not failed, failed[:3]


@pytest.mark.parametrize("dtype", HALVES)
def test_autocast_rounds_neither_scores_nor_weights(dtype):
    query, key, value = (8 * normal(2, 5, 7, seed=seed, dtype=dtype) for seed in range(3))
    expected = attend(query, key, value, "causal")
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(query, key, value, "causal")
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert float((found.weights.sum(-1) - 1.0).abs().max()) <= ROW_SUM[dtype]


@pytest.mark.parametrize("need_weights", sampled([False, True], 1))
def test_garbage_stays_blocked_in_a_compiled_graph(need_weights):
    query, key, value = normal(2, 3, 7), normal(2, 4, 7, seed=1), normal(2, 4, 2, seed=2)
    visible = torch.tensor([True, True, True, False])
    expected = attend(query, key, value, visible).output
    compiled = torch.compile(
        lambda *given: attend(*given, need_weights=need_weights).output, backend="eager"
    )
    for poison in (NAN, INF, 1e16, 1e30):
        key[:, 3] = value[:, 3] = poison
        assert_close(compiled(query, key, value, visible), expected, 2e-6)


def test_nan_in_a_blocked_value_reaches_the_output_only_without_the_guard():
    one_hot = torch.eye(2)
    value = torch.tensor([[1.0], [float("nan")]])
    guarded, bare = (attend(one_hot, one_hot, value, "causal", guard=on) for on in (True, False))
    assert guarded.output[0] == 1.0
    assert bare.output[0].isnan()
    assert torch.equal(bare.weights, guarded.weights)
