"""The anatomy on small settings: its claims hold, and each is turned to failed, alone."""

import functools
import itertools
import json
import math
import sys

import pytest
import torch

import attnlab
from attnlab.errors import WrongUsage
from attnlab.experiments.anatomy import (
    causal_mask,
    complexity,
    cost,
    mask_value,
    normalization,
    position,
    rank,
    score_scale,
    two_relations,
)
from attnlab.experiments.anatomy.complexity import crossing
from attnlab.experiments.anatomy.result import least, most
from attnlab.models.encoder import Encoder
from attnlab.parts.attend import Attention, attention_scores, attention_weights
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import MultiHeadAttention, multi_head_attention
from attnlab.parts.norms import RMSNorm
from tests.sampling import first_of_each

TINY = {"draws": 2_000, "seeds": 2, "steps": 150, "longest": 1_024, "repeats": 2}
CLAIMS = {
    "scaling": [
        "scaled_weights_keep_their_spread", "scaled_weights_do_not_know_the_width",
        "unscaled_weights_saturate", "score_variance_is_the_width",
        "gradient_dies_without_scaling",
    ],
    "masking": [
        "causal_weights_above_the_diagonal", "causal_models_see_the_whole_past",
        "causal_models_do_not_see_the_future", "wrong_masks_are_caught",
    ],
    "mask_value": [
        "boolean_masks_leak_nothing", "minus_100_gives_way", "minus_1e9_depends_on_the_dtype",
        "blocked_rows_are_zeros",
    ],
    "rank": [
        "one_head_keeps_the_rank", "joined_heads_exceed_the_rank", "feed_forward_bends",
    ],
    "heads": [
        "one_row_of_weights_is_not_enough", "one_head_stays_there", "two_heads_solve_it",
    ],
    "position": [
        "order_is_not_seen_without_positions", "order_is_seen_with_positions",
        "sinusoidal_products_know_the_distance_alone",
    ],
    "normalization": [
        "every_position_is_normed", "unbiased_is_smaller",
        "the_place_of_epsilon_counts_when_x_is_small",
    ],
    "complexity": [
        "kept_weights_take_memory_with_the_square",
        "fused_memory_is_linear", "attention_slows_down_sooner",
    ],
}  # fmt: skip


@functools.cache  # a work is called once for all of its times
def counted_seconds(work, calls):
    """A clock of its own: a millisecond for each token, a microsecond for each weight kept."""
    found = work()
    kept = getattr(found, "weights", None)
    return 1e-3 * getattr(found, "output", found).shape[1] + 1e-6 * (
        0 if kept is None else kept.numel()
    )


@pytest.fixture(scope="module", autouse=True)
def no_clock():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "_seconds", counted_seconds)
        yield
    counted_seconds.cache_clear()


@pytest.fixture(scope="module")
def trials():
    """The trainings of the whole run by their heads, which planted faults need not repeat."""
    return {}


def make_narrow(patch):
    """Make attention and feed-forward part an eighth as wide, and count them on shorter inputs."""
    patch.setattr(complexity, "_D_MODEL", 64)
    patch.setattr(complexity, "_D_FF", 256)
    patch.setattr(complexity, "_EQUAL", 128)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, no_clock, trials):
    train = two_relations.train_heads

    def kept(count, *arguments):
        trials[count] = train(count, *arguments)
        return trials[count]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_relations, "train_heads", kept)
        make_narrow(patch)
        return attnlab.run("anatomy", out=tmp_path_factory.mktemp("runs") / "anatomy", **TINY)


@pytest.fixture
def narrow(monkeypatch):
    make_narrow(monkeypatch)


def own_claims(report):
    """Return the experiment's own claims, each with whether it holds."""
    return {claim.name: claim.passed for claim in report.claims}


def failed(part, monkeypatch, module, name, replacement):
    """Run one experiment with something in it exchanged, and name the claims that fail."""
    monkeypatch.setattr(module, name, replacement)
    report = attnlab.run("anatomy", only=part, **TINY)
    own = own_claims(report)
    assert list(own) == CLAIMS[part]
    return [name for name, passed in own.items() if passed is False]


def test_all_eight_experiments_hold_their_claims(whole):
    assert whole.passed
    assert list(own_claims(whole)) == [name for names in CLAIMS.values() for name in names]


def test_each_experiment_alone_gives_its_own_claims_and_sections():
    report = attnlab.run("anatomy", only="normalization", **TINY)
    assert list(own_claims(report)) == CLAIMS["normalization"]
    titles = [each.title for each in report.content.sections]
    assert titles[-2:] == ["Parameters", "Settings"]
    assert titles[0] == "What this run shows"
    assert report.content.sections[0].text.startswith("Normalisation.")
    assert all(title.startswith("Normalisation") for title in titles[1:-2])
    assert dict(report.content.facts)["experiments"] == "normalization"


def test_every_experiment_has_a_figure_of_its_name(whole):
    sections = whole.content.sections
    figures = [each.figure for each in sections if getattr(each, "figure", None)]
    assert len(figures) == len(set(figures))
    for part in CLAIMS:
        assert any(figure.startswith(part.replace("_", "-")) for figure in figures)


def test_the_same_seed_gives_the_same_claims_and_another_seed_others():
    few = {**TINY, "only": "scaling", "draws": 200}
    first, second, other = (attnlab.run("anatomy", seed=seed, **few) for seed in (0, 0, 1))
    assert first.claims == second.claims
    assert first.claims != other.claims


def test_a_run_folder_opens_again_with_its_encoder(whole):
    again = attnlab.open(whole.folder)
    assert again.claims == whole.claims
    model = attnlab.load(whole.folder)
    assert isinstance(model, Encoder)
    tokens = torch.tensor([[0, 1, 2, 3, 0, 4]])
    with attnlab.record(model, "layers.*.attention.weights") as recording:
        torch.testing.assert_close(model(tokens), position.make_encoder("sinusoidal", 0, 0)(tokens))
    assert recording["layers.1.attention.weights"].shape == (1, 4, 6, 6)
    assert [line["claim"] for line in again.metrics] == list(own_claims(whole))
    json.dumps(again.content.to_json(), allow_nan=False)


def test_a_name_that_is_not_one_of_the_eight_is_refused():
    with pytest.raises(WrongUsage, match="only must be one of all, scaling, masking"):
        attnlab.run("anatomy", only="scalling")
    with pytest.raises(WrongUsage, match="draws must be an integer from 200"):
        attnlab.run("anatomy", draws=3)


def test_progress_is_told_by_experiment_and_an_interrupt_gets_through():
    class Impatient:
        def __init__(self):
            self.stages = []

        def stage(self, name):
            self.stages.append(name)

        def step(self, step, steps, figures):
            assert 0 < step <= steps
            if self.stages[-1] == "rank":
                raise KeyboardInterrupt

    observer = Impatient()
    with pytest.raises(KeyboardInterrupt):
        attnlab.run("anatomy", observer=observer, **{**TINY, "draws": 200})
    assert observer.stages == ["scaling", "masking", "mask_value", "rank"]


def test_nan_is_never_lost_among_other_numbers():
    for values in ([0.0, math.nan, 1.0], [math.nan, 0.0], [1.0, math.nan]):
        assert math.isnan(least(values))
        assert math.isnan(most(values))
    assert (least([2.0, 1.0]), most([2.0, 3.0])) == (1.0, 3.0)


class TestScaling:
    def test_the_intervals_hold_their_means_and_shrink_with_more_draws(self):
        few, many = (
            score_scale.attend_randomly(64, draws, 0)[True]["largest"] for draws in (200, 2_000)
        )
        assert few.low < few.value < few.high
        assert many.high - many.low < (few.high - few.low) / 2


class TestMasking:
    def test_causal_maps_show_nothing_above_the_diagonal_reversed_ones_nothing_below(self, whole):
        for choice in whole.content.section("Masking: attention weights and dependence").choices:
            none, causal, wrong = (torch.tensor(each.rows) for each in choice.maps)
            assert float(none.min()) > 0.0
            assert float(causal.triu(1).abs().max()) == 0.0 == float(wrong.tril(-1).abs().max())
            assert float(causal.tril().sum()) > 0.0


class TestMaskValue:
    def test_the_weight_on_masked_keys_rises_at_the_number_itself(self, whole):
        section = whole.content.section("Mask value: attention weight on masked keys")
        curves = {each.name: dict(zip(each.x, each.y, strict=True)) for each in section.series}
        assert curves["-100 in float32"][90.0] < 0.1 < 0.9 < curves["-100 in float32"][110.0]
        assert curves["-1e4 in float32"][9e3] < 0.1 < 0.9 < curves["-1e4 in float32"][1.1e4]
        assert "-1e9 in bfloat16" in curves


class TestRank:
    def test_each_rank_is_kept_by_one_head_and_multiplied_by_four(self, whole):
        section = whole.content.section("Rank: what goes in and what comes out")
        means = {each.name: each.y for each in section.series}
        assert list(means["one head"]) == list(range(1, 9))
        assert means["4 heads joined"][0] == 4
        assert means["feed-forward, no biases"][0] == pytest.approx(2, abs=0.05)


class TestHeads:
    def test_two_heads_look_one_and_two_tokens_back(self, whole):
        choice = whole.content.section("Heads: attention weights after training").choices[0]
        assert choice.label == "2 heads"
        distances = set()
        for each in choice.maps:
            rows = torch.tensor(each.rows)
            distances |= {
                distance for distance in (1, 2) if float(rows.diagonal(-distance)[2:].min()) > 0.8
            }
        assert distances == {1, 2}

    def test_training_that_breaks_fails_its_claims_and_still_reports(self, monkeypatch):
        monkeypatch.setattr(two_relations, "_COUNTS", (1, 2))
        error = two_relations.squared_error
        broken = lambda model, *batch: error(model, *batch) * float("nan")  # noqa: E731
        found = failed("heads", monkeypatch, two_relations, "squared_error", broken)
        assert found == ["one_head_stays_there", "two_heads_solve_it"]


class TestPosition:
    def test_only_the_encoder_without_positions_gives_the_same_set(self, whole):
        bars = whole.content.section("Position: are the two sets of outputs the same?")
        same = {
            kind: value <= 1e-6
            for kind, value in zip(bars.groups, bars.series[0].values, strict=True)
        }
        assert same == {kind: kind == "none" for kind in same}
        assert len(same) == 6

    def test_the_sinusoidal_picture_has_50_positions_and_64_dimensions(self, whole):
        rows = torch.tensor(
            whole.content.section("Position: the sinusoidal encoding").choices[0].maps[0].rows
        )
        assert rows.shape == (50, 64)
        assert rows[0].tolist() == [0.0, 1.0] * 32


class TestNormalisation:
    def test_the_formulas_differ_by_the_place_of_epsilon_alone(self):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        other = normalization.other_norm(x, epsilon=0.0, correction=0)
        torch.testing.assert_close(other, normalization.layer_norm(x, epsilon=0.0))


class TestComplexity:
    def test_the_counts_of_the_first_lines_are_those_of_pytorch(self):
        length = complexity._EQUAL
        attention = multi_head_attention(512, 8).eval()
        feed_forward = FeedForward(512, 2_048).eval()
        x = torch.randn(1, length, 512)
        of_attention = cost.multiply_adds(lambda: attention(x, need_weights=True))
        of_feed_forward = cost.multiply_adds(lambda: feed_forward(x))
        assert of_attention == 4 * length * 512**2 + 2 * length**2 * 512
        assert of_feed_forward == 2 * length * 512 * 2_048 == of_attention
        assert attention(x, need_weights=True).weights.nbytes == complexity.weights_bytes(length)

    def test_lengths_double_and_the_fused_kernel_goes_one_further(self, whole):
        section = whole.content.section("Complexity: time, measured")
        lengths = {each.name: list(each.x) for each in section.series}
        assert lengths["attention, fused"] == [32, 64, 128, 256, 512, 1024, 2048]
        assert lengths["attention, weights kept"] == [32, 64, 128, 256, 512, 1024]

    def test_a_crossing_is_where_the_ratio_stays_above_1(self):
        assert crossing([1, 2, 4], [2.0, 0.5, 2.0]) == pytest.approx(2 * 2**0.5)
        assert crossing([1, 2, 4], [2.0, 2.0, 2.0]) == 0.0
        assert crossing([1, 2, 4], [2.0, 2.0, 1.0]) is None

    def test_peak_memory_is_what_was_held_at_once(self):
        def work():
            for _ in range(3):
                torch.zeros(1_000)  # given back each time
            kept = torch.zeros(2_000)
            return torch.zeros(500).sum() + kept.sum()

        assert 10_000 <= cost.peak_memory(work) < 10_500

    @pytest.mark.usefixtures("narrow")
    def test_a_clock_that_a_busy_machine_disturbs_leaves_the_claim_undecided(self, monkeypatch):
        """Every seventh call takes twenty times as long: now this one, now that."""
        calls = itertools.count()
        monkeypatch.setattr(
            cost,
            "_seconds",
            lambda work, _: counted_seconds(work, 1) * (20.0 if next(calls) % 7 == 0 else 1.0),
        )
        report = attnlab.run("anatomy", only="complexity", **{**TINY, "repeats": 3})
        assert own_claims(report)["attention_slows_down_sooner"] is None

    @pytest.mark.usefixtures("narrow")
    def test_lengths_are_timed_in_turn_so_that_a_slow_round_touches_all_alike(self, monkeypatch):
        """Each round is ten times as slow as the one before; ratios within a round stay."""
        # 3 parts at 32 to 2,048 tokens, without the longest kept weights
        calls, works = itertools.count(), 3 * 7 - 1
        monkeypatch.setattr(
            cost,
            "_seconds",
            lambda work, _: counted_seconds(work, 1) * 10.0 ** (next(calls) // works),
        )
        report = attnlab.run("anatomy", only="complexity", **TINY)
        assert own_claims(report)["attention_slows_down_sooner"] is True

    @pytest.mark.usefixtures("narrow")
    def test_too_little_memory_is_said_with_what_to_do(self, monkeypatch):
        def full(work):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

        monkeypatch.setattr(complexity, "peak_memory", full)
        with pytest.raises(attnlab.AttnlabError, match="take a smaller longest"):
            attnlab.run("anatomy", only="complexity", **TINY)


PLANTED = {}


def plant(owner, name, *claims):
    """Register what takes a function's place, and the claims that it must turn to failed."""

    def register(fault):
        PLANTED[fault.__name__] = (owner, name, fault, list(claims))
        return fault

    return register


@plant(score_scale, "largest_weight", "scaled_weights_keep_their_spread")
def a_scale_that_is_a_little_off(largest, weights):
    return (1.06 * largest(weights)).clamp(max=1.0)


@plant(score_scale, "measure", "scaled_weights_do_not_know_the_width")
def a_drift_with_the_width_though_each_mean_is_within_bounds(measure, width, draws, seed):
    found = measure(width, draws, seed)
    entropy, shift = found[True]["entropy"], -0.004 * math.log2(width / 128)
    found[True]["entropy"] = entropy._replace(value=entropy.value + shift)
    return found


@plant(score_scale, "largest_weight", "unscaled_weights_saturate")
def weights_that_never_reach_1(largest, weights):
    return largest(weights).clamp(max=0.999)


@plant(score_scale, "attend", "score_variance_is_the_width")
def scores_of_the_wrong_size(attend, *tensors, **options):
    found = attend(*tensors, **options)
    return found._replace(scores=found.scores / 2)


@plant(score_scale, "softmax_jacobian_norm", "gradient_dies_without_scaling")
def a_jacobian_without_its_off_diagonal(norm, weights):
    return (weights * (1 - weights)).norm(dim=-1)


@plant(causal_mask, "attend", "causal_weights_above_the_diagonal")
def a_mask_of_minus_5(attend, query, key, value, mask):
    return attend(query, key, value, None if mask is None else torch.where(mask, 0.0, -5.0))


@plant(causal_mask, "causal_mask", "causal_models_see_the_whole_past")
def a_mask_that_shows_each_token_itself_alone(mask, length):
    return torch.eye(length, dtype=torch.bool)


@plant(MultiHeadAttention, "forward", "causal_models_do_not_see_the_future")
def models_that_ignore_their_mask(forward, self, x, *args, mask=None, **options):
    return forward(self, x, *args, **options)


@plant(causal_mask, "largest_leak", "wrong_masks_are_caught")
def a_leak_test_that_sees_nothing(largest_leak, model, tokens):
    return 0.0


@plant(mask_value, "refuses", "minus_1e9_depends_on_the_dtype")
def a_refusal_that_is_not_seen(refuses, dtype, value):
    return False


@plant(mask_value, "attend", "boolean_masks_leak_nothing")
def a_boolean_mask_that_smooths(attend, *tensors, **options):
    found = attend(*tensors, **options)
    return found._replace(weights=found.weights + 1e-9)


@plant(mask_value, "filled_weights", "minus_100_gives_way")
def minus_100_is_silently_made_infinite(filled, scores, mask, value):
    return filled(scores, mask, -math.inf if value == -100.0 else value)


@plant(mask_value, "attend", "blocked_rows_are_zeros")
def a_blocked_row_of_nan(attend, query, key, value, mask, **options):
    scores = attention_scores(query, key, mask, **options)
    output = scores.softmax(-1) @ value.to(scores.dtype)
    return Attention(output.to(query.dtype), attention_weights(scores))


@plant(rank, "attend", "one_head_keeps_the_rank")
def a_head_that_bends(attend, *tensors):
    return Attention(attend(*tensors).output.relu())


@plant(rank, "multi_head_attention", "joined_heads_exceed_the_rank")
def heads_that_all_look_alike(build, d_model, num_heads, **options):
    return build(d_model, 1, **options)


@plant(rank, "FeedForward", "feed_forward_bends")
def a_layer_that_bends_otherwise(build, *widths, **options):
    return build(*widths, activation="gelu", **options)


@plant(two_relations, "weighted_values", "one_row_of_weights_is_not_enough")
def a_row_of_weights_for_each_half(weighted, weights, value):
    rows = torch.eye(3).double()[[1, 0]]
    one, other = (weighted(row.expand(weights.shape), value) for row in rows)
    return torch.cat((one[..., :4], other[..., 4:]), -1)


@plant(two_relations, "train_heads", "one_head_stays_there")
def one_head_that_is_two(train, count, *rest):
    return train(2 if count == 1 else count, *rest)


@plant(two_relations, "train_heads", "two_heads_solve_it")
def two_heads_that_are_one(train, count, *rest):
    return train(1 if count == 2 else count, *rest)


@plant(position, "make_encoder", "order_is_not_seen_without_positions")
def positions_where_there_are_none(build, kind, *seeds):
    return build("learned" if kind == "none" else kind, *seeds)


@plant(position, "make_encoder", "order_is_seen_with_positions")
def learned_positions_that_are_left_out(build, kind, *seeds):
    return build("none" if kind == "learned" else kind, *seeds)


@plant(position, "sinusoidal_positions", "sinusoidal_products_know_the_distance_alone")
def sines_without_their_cosines(encode, length, width, **options):
    return encode(length, 2 * width, **options)[:, ::2]


@plant(
    position, "make_encoder", "order_is_not_seen_without_positions", "order_is_seen_with_positions"
)
def outputs_of_nan_that_prove_nothing(build, *arguments):
    encoder = build(*arguments)
    torch.nn.init.constant_(encoder.final_norm.weight, math.nan)
    return encoder


@plant(normalization, "LayerNorm", "every_position_is_normed")
def rms_norm_in_its_place(norm, *widths):
    return RMSNorm(*widths)


@plant(normalization, "other_norm", "unbiased_is_smaller")
def hiding_the_nan(norm, x, **options):
    return norm(x, **options).nan_to_num()


@plant(normalization, "other_norm", "the_place_of_epsilon_counts_when_x_is_small")
def epsilon_in_the_wrong_place(norm, x, *, correction=1, epsilon=1e-5):
    if correction == 0 and x.shape[-1] > 1:
        variance = x.var(-1, keepdim=True)
        return (x - x.mean(-1, keepdim=True)) / (variance + epsilon).sqrt()
    return norm(x) if x.shape[-1] == 1 else norm(x, epsilon=epsilon)


@plant(complexity, "peak_memory", "kept_weights_take_memory_with_the_square")
def memory_that_forgets_the_weights(peak, work):
    return torch.as_tensor(getattr(work(), "output", work())).nbytes


@plant(sys.modules["attnlab.parts.attend"], "_fused", "fused_memory_is_linear")
def a_fused_kernel_that_holds_the_weights(fused, query, key, value, mask, scale, dropout):
    return attention_weights(attention_scores(query, key, mask, scale=scale)) @ value


@plant(cost, "_seconds", "attention_slows_down_sooner")
def a_clock_that_stands_still(seconds, work, calls):
    return 1e-3


def part_of(planted):
    """Return the experiment whose claims a fault turns to failed."""
    claims = PLANTED[planted][-1]
    (part,) = [part for part, names in CLAIMS.items() if claims[0] in names]
    return part


@pytest.mark.parametrize("planted", first_of_each(PLANTED, part_of))
def test_a_planted_fault_turns_its_claim_to_failed(planted, trials, monkeypatch, request):
    owner, name, fault, claims = PLANTED[planted]
    part = part_of(planted)
    if part == "complexity":
        request.getfixturevalue("narrow")
    if part == "heads":
        request.getfixturevalue("whole")
        monkeypatch.setattr(two_relations, "train_heads", lambda count, *_: trials[count])
    whole = getattr(owner, name)
    changed = lambda *given, **options: fault(whole, *given, **options)  # noqa: E731
    assert failed(part, monkeypatch, owner, name, changed) == claims


def test_every_claim_has_a_fault():
    tested = {claim for *_, claims in PLANTED.values() for claim in claims}
    assert tested == {name for names in CLAIMS.values() for name in names}
