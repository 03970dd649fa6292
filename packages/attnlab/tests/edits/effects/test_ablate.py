"""Ablations: what a sweep gives is what the edits give one by one, however it is computed."""

import importlib

import pytest
import torch

from attnlab.edits import CutEdge, ZeroHead
from attnlab.edits.application import edit
from attnlab.edits.effects import (
    Metric,
    PatchTarget,
    SweepOptions,
    ablate,
    effect,
    next_tokens,
    patch_all,
    pattern_effects,
)
from attnlab.edits.effects.baseline import scores_of
from attnlab.edits.effects.metrics import prepare_metric
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_name
from attnlab.look.lens import logit_lens
from attnlab.look.recording import record
from attnlab.models import SingleHead, SingleHeadConfig
from attnlab.parts.masks import padding_mask
from attnlab.seeds import generator, isolated
from attnlab.sites import Hook, hooks_of, installed
from tests.edits.effects.checks import check_sweep, close
from tests.random_models import given, run
from tests.sampling import sampled

ablations = importlib.import_module("attnlab.edits.effects.ablate")
LABEL = torch.zeros(1).long()
METRICS = ("loss", "logit", "probability", "accuracy", "kl", "logit_difference")


@pytest.mark.parametrize("seed", sampled(range(36), 3))
def test_every_head_taken_out_is_what_the_edit_gives(seed):
    check_sweep(seed, "heads", metric=METRICS[seed % len(METRICS)])


@pytest.mark.parametrize("seed", sampled(range(12), 1))
@pytest.mark.parametrize("what", ["edges", "head edges", "mlps", "attentions"])
def test_every_edge_and_part_taken_out_is_what_the_edit_gives(seed, what):
    check_sweep(seed, what)


class Skipping(Hook):
    """Lets a block give on what it was given."""

    def __init__(self, block):
        self.block = block

    def wants(self, site):
        return site in (f"{self.block}.residual_before", f"{self.block}.residual_after")

    def visit(self, site, value):
        if site.endswith("before"):
            self.came = value
            return value
        return self.came


def test_edges_are_taken_out_beside_a_bias_by_position():
    check_sweep(0, "edges", positions="alibi")


@pytest.mark.parametrize("seed", sampled(range(12), 1))
def test_every_layer_taken_out_gives_on_what_it_was_given(seed):
    each = given(seed)
    found = ablate(*each.whole, "layers", **each.loss)
    own = prepare_metric(Metric("loss", each.labels), run(each))
    for place, after in zip(found.places, found.after, strict=True):
        with installed(each.model, Skipping(place.path)):
            close(after, own(run(each), run(each))[0], torch.float64)


@pytest.mark.parametrize(
    ("seed", "options"), [(9, {"budget": 1}), (1, {"threads": 3, "budget": 9_000})]
)
def test_budget_and_threads_change_nothing(seed, options):
    each = given(seed)
    told = each.loss
    for what in ("heads", "layers", "edges"):
        plain = ablate(*each.whole, what, **told, how=SweepOptions(threads=1))
        found = ablate(*each.whole, what, **told, how=SweepOptions(**options))
        assert found.places == plain.places
        close(found.after, plain.after, torch.float64)


def test_a_small_budget_parts_the_rows_and_the_cases():
    each, sizes = given(4, "decoder", num_layers=2), []
    tokens = torch.cat([each.inputs] * 8)[:17]

    def watch(model, arguments, options):
        sizes.append(len(arguments[0]))

    handle = each.model.register_forward_pre_hook(watch, with_kwargs=True)
    ablate(each.model, tokens, how=SweepOptions(budget=1))
    handle.remove()
    assert max(sizes) <= 3  # two rows, or three where they are odd; one case
    assert len(sizes) > 17


@pytest.mark.parametrize(
    ("positions", "norm_place", "kind"),
    [
        ("rotary", "pre", "padded decoder"),
        ("alibi", "post", "padded decoder"),
        ("learned", "none", "padded decoder"),
        ("rotary", "post", "decoder"),
        ("alibi", "none", "decoder"),
        ("none", "pre", "decoder"),
    ],
)
def test_the_last_block_is_cut_short_where_only_last_positions_count(positions, norm_place, kind):
    each = given(8, kind, positions=positions, norm_place=norm_place, num_layers=2, num_kv_heads=1)
    lengths = []
    handle = each.model.layers[1].feed_forward.register_forward_pre_hook(
        lambda module, arguments: lengths.append(arguments[0].shape[1])
    )
    last = Metric("logit", position=each.labels.shape[1] - 1)
    found = ablate(*each.whole, metric=last)
    handle.remove()
    assert lengths[0] > 1  # the plain pass
    assert set(lengths[1:]) == {1}
    own = prepare_metric(Metric("logit"), run(each))
    for place, after in zip(found.places, found.after, strict=True):
        with edit(each.model, ZeroHead(site=place.path, head=place.head), certify=False):
            close(after, own(run(each), run(each))[0], torch.float64)


def test_what_comes_before_a_head_is_not_computed_again():
    each = given(0, "decoder", num_layers=3)
    calls = []
    for index, layer in enumerate(each.model.layers):
        layer.attention.query.register_forward_hook(lambda *_, index=index: calls.append(index))
    ablate(*each.whole, parts="layers.1.attention", **each.loss)
    assert calls == [0, 1, 2, 2]  # once in the plain pass; only the last layer attends again


def test_a_function_of_the_logits_sees_all_rows_of_each_case():
    each = given(4, "decoder")
    shapes = []

    def first_logit(logits):
        shapes.append(tuple(logits.shape))
        return logits[:, 0, 0]

    found = ablate(*each.whole, metric=first_logit, how=SweepOptions(budget=1))
    assert set(shapes) == {(*each.inputs.shape, 11)}
    assert found.metric == "first_logit"


def test_the_name_of_a_run_is_no_model():
    with pytest.raises(WrongUsage, match=r"expected a model, such as attnlab.load\(.*; got a str"):
        ablate("runs/sorting", torch.zeros(1, 3, dtype=torch.int64))


def test_a_head_by_its_name_is_refused_with_how_it_is_written():
    each = given(4, "decoder")
    for head in ("0.1", (0, 1), "L0H1"):
        with pytest.raises(WrongUsage, match=r'head 0.1 is parts="layers.0.attention", heads=1'):
            ablate(*each.whole, heads=[head])


def test_a_result_says_whose_number_is_measured_and_where():
    each = given(4, "decoder")
    names = ["a", "b", "c", *map(str, range(3, 11))]
    each.model.vocabulary = names
    words = {
        "logit of 'b', last position": {"target": 1},
        "logit of each answer, last position": {"target": [0, 1, 0, 1, 0]},
        "loss of 'c', position 1": {"metric": Metric("loss", 2, position=1)},
        "logit of 'b' less that of 'a', last position": {
            "metric": Metric("logit_difference", 1, 0)
        },
        "kl, last position": {"metric": "kl"},
        "loss": {"metric": "loss", "target": each.labels},
    }
    for measured, options in words.items():
        found = ablate(*each.whole, **options)
        assert found.measured == measured
        assert str(found).startswith(f"{measured}, {each.num_rows} inputs: ")


def test_a_table_has_a_row_for_each_part_and_nan_where_there_is_no_such_head():
    each = given(3, "encoder-decoder", num_layers=1, num_heads=2)
    found = ablate(*each.whole, **each.loss)
    assert found.parts == [
        "encoder.layers.0.attention",
        "decoder.layers.0.attention",
        "decoder.layers.0.cross_attention",
    ]
    assert torch.equal(found.table(), found.effects.mean(1).view(3, 2))
    only = {"heads": [1], "parts": "*cross_attention"}
    some = ablate(*each.whole, **each.loss, **only)
    assert some.places == (PatchTarget("decoder.layers.0.cross_attention", 1),)
    assert torch.isnan(some.table()[0, 0])
    place, value = found.largest(1)[0]
    assert abs(value) == float(found.table().abs().max())
    assert str(place) == f"head {head_name(place.path, place.head)}"


def test_edges_are_laid_out_by_query_and_key():
    each = given(0, "decoder", num_layers=1)
    found = ablate(*each.whole, "edges", **each.loss, edges=[(2, 0), (1, 1)])
    table = found.table()
    assert table.shape == (1, 3, 2)
    assert torch.equal(table[0, 2, 0], found.effects[0].mean())
    assert int(torch.isnan(table).sum()) == 4
    assert str(found.places[0]) == "layers.0.attention, query 2 to key 0"


def test_progress_is_told_in_order_until_all_are_done():
    each, told = given(4, "decoder"), []
    found = ablate(*each.whole, how=SweepOptions(20_000, progress=lambda *both: told.append(both)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] >= len(found.places)


@pytest.mark.parametrize("threads", [1, 2])
def test_hooks_are_gone_and_parameters_kept_also_after_an_error(threads):
    each = given(4, "decoder")
    before = {name: value.clone() for name, value in each.model.state_dict().items()}
    number = torch.get_num_threads()
    calls = []

    def breaks(logits):
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("a metric of one's own can fail")
        return logits[:, 0, 0]

    with pytest.raises(RuntimeError, match="can fail"):
        ablate(*each.whole, metric=breaks, how=SweepOptions(threads=threads))
    assert hooks_of(each.model) == []
    assert torch.get_num_threads() == number
    assert all(torch.equal(value, before[name]) for name, value in each.model.state_dict().items())


def test_a_recording_may_stand_by():
    each = given(0, "decoder")
    plain = ablate(*each.whole)
    with record(each.model, "layers.*.attention.weights"):
        assert torch.equal(ablate(*each.whole).after, plain.after)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"what": "head"}, "did you mean 'heads'"),
        ({"heads": [9]}, "has the heads 0 to"),
        ({"parts": "layer.0.attention"}, "no site of this model matches"),
        ({"what": "mlps", "heads": [0]}, "ablated whole"),
        ({"edges": [(0, 0)]}, "goes with what='edges'"),
        ({"what": "edges", "edges": [(0, 1)]}, "it is blocked"),
        ({"what": "edges", "edges": [(99, 1)]}, "an edge is (query, key)"),
        ({"heads": []}, "there is nothing to measure"),
        ({"metric": "losses"}, "did you mean 'loss'"),
        ({"metric": "loss"}, "needs target="),
        ({"metric": Metric("loss", LABEL), "target": LABEL}, "target= was given twice"),
        ({"metric": lambda logits: logits}, "one number for each row"),
        ({"metric": lambda logits: logits[:, -1, 0], "target": torch.zeros(5)}, "takes no target"),
        ({"parts": ["*", "nothere"]}, "no site of this model matches 'nothere"),
        ({"what": "edges", "edges": (1, 0)}, "edges are pairs (query, key) of integers"),
        ({"what": "edges", "edges": [(1, 0, 0)]}, "got (1, 0, 0)"),
        ({"what": "edges", "edges": [(True, False)]}, "edges are pairs"),
        ({"what": "edges", "edges": 3}, "got 3"),
        ({"how": None}, "how= is such as SweepOptions"),
        ({"how": SweepOptions(budget="1 GiB")}, "budget (in bytes) must be an integer"),
        ({"how": SweepOptions(threads=0)}, "threads must be an integer of at least 1"),
        ({"how": SweepOptions(progress=True)}, "progress is a function"),
    ],
)
def test_what_makes_no_sense_is_said(arguments, words):
    each = given(0, "decoder")
    with pytest.raises(WrongUsage) as caught:
        ablate(*each.whole, **arguments)
    assert words in str(caught.value)


def test_an_edit_in_force_and_dropout_are_refused():
    each = given(0, "decoder", dropout=0.5)
    with edit(each.model, ZeroHead(layer=0, head=0)):
        run(each)
        with pytest.raises(WrongUsage, match="an edit is in force"):
            ablate(*each.whole)
    each.model.train()
    with pytest.raises(WrongUsage, match="training mode"):
        ablate(*each.whole)
    other = given(4, "decoder")  # dropout of PyTorch's own
    block = other.model.layers[0].feed_forward
    block.outer = torch.nn.Sequential(block.outer, torch.nn.Dropout(0.5))
    ablate(other.model.eval(), other.inputs)
    other.model.train()
    with pytest.raises(WrongUsage, match="random dropout"):
        ablate(other.model, other.inputs)


@pytest.mark.parametrize(
    "inputs",
    [
        torch.zeros(0, 3, dtype=torch.int64),
        torch.zeros(4, 0, dtype=torch.int64),
        [],
        {},
        None,
        "cab",
        (torch.zeros(2, 3), 1),
        torch.tensor(3),
        {"tokens": torch.zeros(2, 3, dtype=torch.int64), "real": torch.ones(3, 3).bool()},
    ],
)
def test_inputs_that_are_none_are_refused(inputs):
    with pytest.raises(WrongUsage, match=r"inputs (are|need)|same number of rows|position must"):
        ablate(given(0, "decoder").model, inputs)


@pytest.mark.parametrize(
    "call",
    [
        lambda each, inputs: ablate(each.model, inputs),
        lambda each, inputs: patch_all(each.model, inputs, inputs),
        lambda each, inputs: pattern_effects(each.model, inputs.repeat(3, 1)),
        lambda each, inputs: effect(each.model, inputs, ZeroHead(site="*cross_attention", head=0)),
        lambda each, inputs: logit_lens(each.model, inputs),
    ],
)
def test_an_encoder_decoder_given_its_source_alone_says_what_its_inputs_are(call):
    each = given(3, "encoder-decoder")
    with pytest.raises(WrongUsage, match=r"EncoderDecoder are \(source, target\); got a Tensor"):
        call(each, each.inputs["source"])
    assert hooks_of(each.model) == []


def test_inputs_that_the_model_does_not_take_are_named_and_its_own_mistakes_are_left():
    each = given(0, "decoder")
    several, misnamed = (each.inputs, each.inputs), {"token": each.inputs}
    for inputs, words in ((several, "too many"), (misnamed, "token=: missing")):
        with pytest.raises(WrongUsage) as caught:
            ablate(each.model, inputs)
        assert "the inputs of Decoder are (tokens)" in str(caught.value)
        assert words in str(caught.value)

    def broken(*arguments):
        raise TypeError("the model's own")

    each.model.embedding.forward = broken
    with pytest.raises(TypeError, match="the model's own"):
        ablate(*each.whole)


def test_next_tokens_count_everywhere_but_at_the_end():
    each = given(4, "decoder")
    found = ablate(*each.whole, metric="loss", target=next_tokens(each.inputs))
    logits = run(each)
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    wanted = loss(logits[:, :-1].transpose(1, 2), each.inputs[:, 1:]).mean(1)
    close(found.before, wanted, torch.float64)


@pytest.mark.parametrize("what", ["heads", "edges"])
def test_a_part_that_does_not_ask_for_what_is_known_is_changed_all_the_same(what):
    """A single head computes its heads whoever knows them."""
    with isolated(0):
        model = SingleHead(SingleHeadConfig(input_dim=3, qk_dim=4, v_dim=5)).double().eval()
    x = torch.randn(4, 3, 3, generator=generator(0, "x"), dtype=torch.float64)

    def measured(output):
        return output.flatten(1).sum(1)

    found = ablate(model, x, what, metric=measured)
    assert len(found.places) == (1 if what == "heads" else 9)
    for place, after in zip(found.places, found.after, strict=True):
        cut = ZeroHead(head=0) if what == "heads" else CutEdge(query=place.query, key=place.key)
        with edit(model, cut, certify=False):
            close(after, measured(model(x).output.detach()), torch.float64)
    assert float(found.effects.abs().max()) > 1e-3


def test_what_stands_in_padding_reaches_no_edge_that_is_cut_elsewhere():
    """NaN in padded tokens: cut edges are what the edit gives, and every control is finite."""
    each = given(4, "decoder", positions="rotary")
    length, lengths = 6, torch.tensor([6, 4, 3, 5])
    with torch.no_grad():
        each.model.embedding.tokens.weight[10] = float("nan")
    tokens = torch.randint(10, (4, length), generator=generator(0, "padded"))
    tokens = tokens.masked_fill(torch.arange(length) >= lengths.unsqueeze(1), 10)
    inputs = {"tokens": tokens, "mask": padding_mask(lengths, length)}
    last = torch.arange(4), lengths - 1

    def measured(logits):
        return logits[last][:, 3]

    found = ablate(each.model, inputs, "edges", parts="layers.0*", metric=measured)
    assert found.after.isfinite().all()
    for place, after in zip(found.places[:8], found.after, strict=False):
        cut = CutEdge(site=place.path, query=place.query, key=place.key)
        with edit(each.model, cut, certify=False):
            close(after, measured(run(each._replace(inputs=inputs))), torch.float64)
    assert pattern_effects(each.model, inputs, metric=measured).effects.isfinite().all()


def test_edges_are_cut_without_the_scores_of_all_queries(monkeypatch):
    each = given(4, "decoder")
    seen = []

    def watched(call, head=None):
        seen.append(call.query.shape[-2])
        return scores_of(call, head)

    monkeypatch.setattr(ablations, "scores_of", watched)
    ablate(*each.whole, "edges")
    assert set(seen) == {1}


def test_threads_are_left_alone_under_autocast():
    """It holds for one thread alone; in others the same pass would be computed otherwise."""
    each = given(4, "decoder", dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        one = ablate(*each.whole, how=SweepOptions(threads=1))
        two = ablate(*each.whole, how=SweepOptions(threads=2))
    close(two.after, one.after, torch.float32)


def _padded():
    """A decoder, ids, their lengths, and how the whole is called, with a mask of padding."""
    each = given(1, "padded decoder", num_layers=2, positions="rotary")
    ids = torch.randint(11, (3, 6), generator=generator(0, "padded"))
    return each.model, ids, [2, 6, 4], {"tokens": ids, "mask": padding_mask([2, 6, 4], 6)}


def test_padding_that_a_mask_tells_of_is_no_last_position():
    """The logit of the answer was once read behind the text."""
    model, ids, lengths, inputs = _padded()
    found = ablate(model, inputs)
    lens = logit_lens(model, inputs)
    for row, length in enumerate(lengths):
        alone = ids[row : row + 1, :length]
        close(found.after[:, row : row + 1], ablate(model, alone).after, torch.float64)
        close(lens.logits[:, row : row + 1], logit_lens(model, alone).logits, torch.float64)
        second = Metric("probability", position=-2)
        before = ablate(model, alone, metric=second).before
        close(ablate(model, inputs, metric=second).before[row : row + 1], before, torch.float64)


def test_the_figures_of_an_effect_leave_padding_out():
    model, ids, lengths, inputs = _padded()
    told = effect(model, inputs, ZeroHead(layer=0, head=0)).to_mapping()
    rows = [ids[row : row + 1, :length] for row, length in enumerate(lengths)]
    alone = [effect(model, row, ZeroHead(layer=0, head=0)).to_mapping() for row in rows]
    assert told["choices"] == sum(lengths) == sum(each["choices"] for each in alone)
    assert told["choices_changed"] == sum(each["choices_changed"] for each in alone)
    mean = sum(each["mean_divergence"] * each["choices"] for each in alone) / sum(lengths)
    assert told["mean_divergence"] == pytest.approx(mean, rel=1e-6)
    largest = max(each["largest_logit_change"] for each in alone)
    assert told["largest_logit_change"] == pytest.approx(largest, rel=1e-6)
