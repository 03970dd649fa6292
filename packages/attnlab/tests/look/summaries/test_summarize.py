"""Summaries are what the explicit weights would give, both ways of computing them."""

import numpy as np
import pytest
import torch

from attnlab import native as attnlab_native
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.summaries import Summarize, summarize, summary_inputs
from attnlab.look.summaries.row_blocks import summary_of_weights
from attnlab.native import attention, compiler_name, vectors
from attnlab.parts.attend import attention_scores, attention_weights
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import causal_mask, padding_mask
from attnlab.sites import AttentionCall
from tests.look.summaries.explicit import KINDS, Case, case, check, summary, weights_and_scores
from tests.sampling import sampled

WAYS = [
    ("native", torch.float32, 1e-5),
    ("torch", torch.float32, 1e-5),
    ("torch", torch.float64, 1e-12),
]
BY_QUERY = ("entropy", "largest", "distance", "spread", "first", "own", "previous")
both_ways = pytest.mark.parametrize("way", ["native", "torch"])


@pytest.fixture(autouse=True)
def _skips_without_a_compiler(request):
    if "native" in request.node.name and compiler_name() is None:
        pytest.skip("there is no C++ compiler here")


def summarized(one, way=None):
    return summarize(
        one.query, one.key, one.mask, scale=one.scale, tiles=one.tiles, top=one.top, way=way
    )


def check_case(one, way, bound=1e-5):
    """Hold a summary against the explicit one."""
    weights, scores = weights_and_scores(one)
    check(summarized(one, way), summary(weights, scores, one.tiles, one.top), bound, weights)


def check_cases(way, dtype, bound, drawn, kind=None):
    """Hold many drawn cases against the explicit ones."""
    for seed in drawn:
        check_case(case(seed, dtype, kind), way, bound)


def check_equal(one, other):
    for name, part in one._asdict().items():
        assert torch.equal(part, getattr(other, name)), name


@pytest.mark.parametrize("part", sampled(range(14), 1))
@pytest.mark.parametrize(("way", "dtype", "bound"), WAYS)
def test_a_thousand_summaries_are_those_of_the_explicit_weights(way, dtype, bound, part):
    check_cases(way, dtype, bound, range(24 * part, 24 * (part + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 32])
def test_native_narrower_vectors_say_the_same(width, monkeypatch):
    if width > attnlab_native.vector_bytes():
        pytest.skip("vectors of this width are not there")
    monkeypatch.setattr(attention, "vectors", lambda: vectors(width=width))
    monkeypatch.setenv("CXXFLAGS", "-O1")  # as right, and compiled in less time
    library = attention.library.__wrapped__()
    monkeypatch.setattr(attention, "library", lambda: library)
    check_cases("native", torch.float32, 1e-5, range(40))


@both_ways
def test_many_row_blocks_and_ragged_cells_fit_together(way):
    # 700 rows are several units of work, 37 × 41 cells of 19 and 18 positions are ragged on both
    # sides.
    source = torch.Generator().manual_seed(3)
    query, key = torch.randn(700, 16, generator=source), torch.randn(733, 16, generator=source)
    for mask, tiles in ((None, 37), ("causal", 41), (90, 300)):
        check_case(Case(query, key, mask, None, tiles, 8), way)


@both_ways
def test_a_query_that_may_look_at_nothing_gets_zeros(way):
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    found = summarize(torch.randn(3, 4), torch.randn(5, 4), mask, top=2, way=way)
    for name in (*BY_QUERY, "effective_keys"):
        assert getattr(found, name)[1] == 0, name
        assert not getattr(found, name).isnan().any(), name
    assert found.top_keys[1].tolist() == [-1, -1]
    assert found.top_weights[1].tolist() == [0, 0]
    assert found.log_sum[1] == -torch.inf
    assert (found.map_mean[1] == 0).all()
    assert (found.map_max[1] == 0).all()
    assert (found.largest > 0).tolist() == [True, False, True]


@both_ways
def test_of_equal_weights_the_first_keys_are_named_first(way):
    for keys in (6, 300):
        found = summarize(torch.zeros(40, 4), torch.randn(keys, 4), top=5, way=way)
        assert (found.top_keys == torch.arange(5)).all()
    key = torch.zeros(200, 1)
    key[[150, 190, 30, 77]] = 1.0
    found = summarize(torch.full((2, 1), 3.0), key, top=6, way=way)
    assert found.top_keys.tolist() == [[30, 77, 150, 190, 0, 1]] * 2


@both_ways
def test_blocked_weights_are_exactly_zero(way):
    found = summarize(torch.randn(200, 8), torch.randn(200, 8), "causal", tiles=200, way=way)
    above = ~causal_mask(200)
    assert (found.map_mean[above] == 0).all()
    assert (found.map_max[above] == 0).all()
    assert (found.map_max[~above] > 0).all()
    assert found.top_keys[0].tolist() == [0] + [-1] * 7


@both_ways
def test_the_offset_moves_what_speaks_of_positions_and_nothing_else(way):
    query, key = torch.randn(5, 8), torch.randn(20, 8)
    weights = attention_weights(attention_scores(query, key))
    found, usual = summarize(query, key, offset=3, way=way), summarize(query, key, way=way)
    assert torch.allclose(found.own, weights[range(5), range(3, 8)], atol=1e-6)
    assert torch.allclose(found.previous, weights[range(5), range(2, 7)], atol=1e-6)
    assert torch.allclose(found.distance, usual.distance - 12, atol=1e-4)
    assert torch.equal(found.entropy, usual.entropy)


@both_ways
def test_a_sharp_row_has_a_spread_as_exact_as_its_weights(way):
    # One key far out has nearly all the weight: squares of its position must not swallow what
    # little is beside it.
    key = torch.zeros(500, 1)
    key[480], key[483] = 1.0, 0.5
    one = Case(torch.full((1, 1), 30.0), key, None, None, 4, 2)
    expected = summary(*weights_and_scores(one), 4, 2)["spread"].item()
    assert abs(summarized(one, way).spread.item() - expected) < 1e-8 + 1e-3 * expected


@both_ways
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(way, dtype):
    # Of 3,000 equal keys a half-precision sum would stop growing.
    found = summarize(torch.zeros(2, 4, dtype=dtype), torch.ones(3000, 4, dtype=dtype), way=way)
    assert found.entropy.dtype == torch.float32
    assert torch.allclose(found.entropy, torch.tensor(3000.0).log().expand(2), atol=1e-5)
    one = case(5, torch.float32)
    check_case(one._replace(query=one.query.to(dtype), key=one.key.to(dtype)), way)


def test_native_any_number_of_threads_gives_the_same_bits():
    query, key = torch.randn(3, 700, 32), torch.randn(3, 700, 32)
    alone = summarize(query, key, "causal", tiles=13, way="native")
    torch.set_num_threads(3)
    try:
        together = summarize(query, key, "causal", tiles=13, way="native")
    finally:
        torch.set_num_threads(1)
    check_equal(alone, together)


@both_ways
def test_leading_axes_broadcast_and_strides_do_not_matter(way):
    query, key = torch.randn(2, 50, 3, 8).transpose(1, 2), torch.randn(50, 16)[:, ::2]
    found = summarize(query, key, way=way)
    alone = summarize(query.contiguous(), key.contiguous().expand(2, 3, 50, 8), way=way)
    check_equal(found, alone)
    assert found.entropy.shape == (2, 3, 50)
    turned = torch.rand(50, 50).T < 0.5
    assert torch.equal(
        summarize(query, key, turned, way=way).entropy,
        summarize(query, key, turned.contiguous(), way=way).entropy,
    )


def test_garbage_in_blocked_keys_reaches_nobody_and_seen_garbage_shows():
    query, key = torch.randn(4, 8), torch.randn(6, 8)
    mask = padding_mask([4], 6)[0]
    clean = summarize(query, key, mask[0])
    key[5] = float("nan")
    found = summarize(query, key, mask[0])
    assert torch.allclose(found.entropy, clean.entropy, atol=1e-6)
    assert torch.equal(found.top_keys, clean.top_keys)
    key[0, 0] = float("nan")
    assert summarize(query, key, mask[0]).entropy.isnan().all()


def test_vast_numbers_take_the_careful_way():
    found = summarize(torch.full((2, 4), 1e20), torch.full((3, 4), 1e20))
    assert found.entropy.isnan().all()  # as `attend`: the scores are infinite
    with pytest.raises(CouldNotRun, match="too large"):
        summarize(torch.full((2, 4), 1e20), torch.full((3, 4), 1e20), way="native")


def test_blocks_in_which_nothing_can_be_seen_are_not_computed(monkeypatch):
    computed = []
    scores = summary_inputs.SummaryInputs.scores

    def counted(self, *block):
        found = scores(self, *block)
        computed.append(found.numel())
        return found

    monkeypatch.setattr(summary_inputs.SummaryInputs, "scores", counted)
    monkeypatch.setattr("attnlab.look.summaries.row_blocks._CPU_NUMBERS", 20 * 400)
    query, key = torch.randn(400, 4), torch.randn(400, 4)
    padding = torch.arange(400) < 100
    for mask, share in (
        ("causal", 0.53),
        (40, 0.15),
        (padding, 0.26),
        (causal_mask(400), 0.53),
        (None, 1.0),
    ):
        computed.clear()
        summarize(query, key, mask, way="torch")
        assert sum(computed) <= share * 400 * 400


@both_ways
@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0)])
def test_nothing_to_summarise_is_no_accident(queries, keys, way):
    if way == "native":
        with pytest.raises(CouldNotRun, match="nothing to compute"):
            summarize(torch.randn(2, queries, 4), torch.randn(2, keys, 4), way=way)
        return
    found = summarize(torch.randn(2, queries, 4), torch.randn(2, keys, 4))
    assert found.entropy.shape == (2, queries)
    assert found.top_keys.shape == (2, queries, 8)
    assert (found.entropy == 0).all()


def test_no_gradient_is_kept():
    query = torch.randn(3, 4, requires_grad=True)
    for way in ("native", "torch"):
        found = summarize(query, torch.randn(3, 4, requires_grad=True), way=way)
        assert not any(part.requires_grad for part in found)


@pytest.mark.parametrize(
    "mask", [None, "causal", torch.rand(2, 6, 9, 12) < 0.7, torch.randn(1, 1, 9, 12)]
)
def test_heads_that_share_keys_are_summarised_as_if_each_had_its_own(mask):
    query, key = torch.randn(2, 6, 9, 8), torch.randn(2, 2, 12, 8)
    found = Summarize(tiles=4, top=3)(AttentionCall(query, key, key, mask, None, is_explicit=False))
    check_equal(found, summarize(query, share_heads(key, 6), mask, tiles=4, top=3))
    assert found.map_mean.shape == (2, 6, 3, 4)


def test_weights_that_are_there_are_summarised_alike():
    for seed in range(20):
        one = case(seed, torch.float64)
        weights, scores = weights_and_scores(one)
        expected = summary(weights, scores, one.tiles, one.top)
        found = Summarize(tiles=one.tiles, top=one.top).of_weights(torch.from_numpy(weights))
        del expected["log_sum"]
        check(found, expected, 1e-12, weights)
    half = summary_of_weights(torch.rand(3, 4).half(), tiles=2, top=1)
    assert half.entropy.dtype == torch.float32


def test_without_a_compiler_the_same_is_said(monkeypatch):
    query, key = torch.randn(70, 8), torch.randn(70, 8)
    expected = summarize(query, key, "causal", way="torch")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(attention, "library", attention.library.__wrapped__)
    check_equal(summarize(query, key, "causal"), expected)
    with pytest.raises(CouldNotRun, match="looked for no-such-compiler"):
        summarize(query, key, way="native")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"top": 2.5}, "top must be an integer of at least 1; got 2.5"),
        ({"mask": "casual"}, "got 'casual'"),
        ({"mask": 0}, "the window must be an integer of at least 1; got 0"),
        ({"mask": torch.ones(3, 4, dtype=torch.int64)}, r"convert it with mask\.bool"),
        ({"mask": torch.ones(7, 4, dtype=torch.bool)}, "must broadcast to the scores"),
        ({"scale": float("nan")}, "scale is None or True"),
        ({"offset": 1.5}, "offset is an integer, the first query's position"),
        ({"way": "cuda"}, 'a way is "native", "torch" or None'),
        ({"key": torch.randn(4, 6)}, "the same width; got 5 and 6"),
        ({"key": None}, "key must be a tensor"),
    ],
)
def test_a_mistake_is_told(change, said):
    given = {"query": torch.randn(3, 5), "key": torch.randn(4, 5)} | change
    with pytest.raises(WrongUsage, match=said):
        summarize(**given)
    for wrong in ({"tiles": 0}, {"top": 0}):
        with pytest.raises(WrongUsage):
            Summarize(**wrong)
    with pytest.raises(WrongUsage, match="weights are floating-point"):
        Summarize().of_weights(torch.ones(2, 2, dtype=torch.bool))


def test_every_kind_of_mask_is_among_the_cases():
    assert {type(case(0, kind=kind).mask) for kind in KINDS} == {type(None), str, int, torch.Tensor}
    assert np.isneginf(weights_and_scores(case(1, kind="causal"))[1]).any()
