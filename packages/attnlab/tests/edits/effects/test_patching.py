"""Patching: places and paths between a clean and a corrupted input."""

import importlib
from dataclasses import replace

import pytest
import torch

from attnlab.edits import Patch, edit
from attnlab.edits.effects import Patched, PatchTarget, Path, SweepOptions, patch_all, patch_paths
from attnlab.edits.effects.metrics import Metric, prepare_metric
from attnlab.edits.effects.patched import Recovery
from attnlab.errors import WrongUsage
from attnlab.look.recording import record
from attnlab.parts.attend import attend
from attnlab.parts.heads import share_heads, split_heads
from attnlab.parts.masks import padding_mask
from attnlab.seeds import generator
from attnlab.sites import installed, site_names
from tests.edits.effects.checks import close, pair
from tests.hooks import Change
from tests.random_models import given, random_model, run
from tests.sampling import sampled

LOGITS = PatchTarget("logits")


@pytest.mark.parametrize("seed", sampled(range(5), 1))
@pytest.mark.parametrize("what", ["stream", "heads", "attentions", "mlps"])
def test_a_patch_is_what_the_edit_gives_and_lies_where_it_should_between_the_runs(seed, what):
    """A patch is the edit `Patch`; nothing is 0 and everything 1 of the way from the corrupted to
    the clean run."""
    each = given(seed, "decoder")
    other = each._replace(inputs=(each.inputs.roll(1, 1).flip(0) + 1) % 11)
    found = patch_all(*each.whole, other.inputs, what, **each.loss)
    sites = [place.site for place in found.places]
    with record(each.model, list(dict.fromkeys(sites))) as recording:
        run(each)
    own = prepare_metric(Metric("loss", each.labels), run(each))
    after = []
    for place, site in zip(found.places, sites, strict=True):
        places = {"head": place.head, "query": place.query}
        where = {name: number for name, number in places.items() if number is not None}
        with edit(each.model, Patch(recording=recording, site=site, **where), certify=False):
            after.append(own(run(other), run(other))[0])
    close(found.after, torch.stack(after), torch.float64)
    clean_now, corrupted_now = own(run(each), run(each))[0], own(run(other), run(other))[0]
    low, high = corrupted_now.mean(), clean_now.mean()
    close(found.shares, (torch.stack(after).mean(1) - low) / (high - low), torch.float64)
    if what == "heads":
        assert found.table().shape == (each.model.config.num_layers, each.model.config.num_heads)


@pytest.mark.parametrize("seed", sampled(range(8), 1))
def test_patching_everything_goes_all_the_way(seed):
    """All of the stream before the first block, patched, brings everything back."""
    each, other = pair(seed, positions="rotary")
    told = {**each.loss, "each_position": False}
    first = "layers.0.residual_before"
    assert abs(float(patch_all(*each.whole, other, first, **told).shares[0]) - 1.0) < 1e-12
    noised = patch_all(*each.whole, other, first, **told, direction="noise")
    assert abs(float(noised.shares[0])) < 1e-12


CHANNELS = [
    ("layers.0.feed_forward.hidden", None, {}),
    ("layers.1.residual_before", True, {"query": 2}),
    ("layers.0.attention.heads", None, {"head": 1}),
]


def check_channels(site, each_position, targets):
    """Each channel patched alone is what the edit of that channel gives."""
    each, other = pair(4)
    patches = patch_all(*each.whole, other, site, channel=(-1, "1..2"), each_position=each_position)
    clean = record(each.model, each.inputs, site)
    metric = Metric("logit_difference", *_labels(each, other))
    prepared = prepare_metric(metric, run(each), None)
    width = clean[site].shape[-1]
    numbers = {place.channel for place in patches.places}
    assert numbers == {width - 1, 1, 2}
    for place, after in zip(patches.places, patches.after, strict=True):
        if any(getattr(place, name) != number for name, number in targets.items()):
            continue
        change = Patch(site=site, recording=clean, channel=place.channel, **targets)
        with torch.no_grad(), edit(each.model, change):
            logits = each.model(other)
        close(after, prepared(logits, logits)[0], torch.float64)
    return patches


def _labels(each, other):
    """The answers to the clean input, and the likeliest other ones to the corrupted one."""
    with torch.no_grad():
        rivals = each.model(other)[:, -1]
    labels = run(each)[:, -1].argmax(-1)
    return labels, rivals.scatter(1, labels[:, None], -torch.inf).argmax(-1)


@pytest.mark.parametrize(("site", "each_position", "targets"), CHANNELS)
def test_a_channel_patched_alone_is_what_the_edit_of_it_gives(site, each_position, targets):
    patches = check_channels(site, each_position, targets)
    (table, *_) = patches.number_tables()
    assert table.column_title == "channel"
    assert "channel 1" in str(patches)
    assert "one channel of" in patches.page_words[1]


def test_a_channel_beside_the_asked_one_is_caught(monkeypatch):
    plain = PatchTarget.index.fget

    def beside(self):
        *others, channel = plain(self)
        return (*others, channel - 1 if isinstance(channel, int) else channel)

    monkeypatch.setattr(PatchTarget, "index", property(beside))
    with pytest.raises(AssertionError):
        check_channels(*CHANNELS[0])


def test_channels_estimated_alone_add_up_to_the_estimate_of_all():
    each, site = given(4, "decoder"), "layers.0.feed_forward.hidden"
    other, gradient = (each.inputs + 1) % 11, {"estimate": "gradient"}
    apart = patch_all(*each.whole, other, site, channel="all", **gradient)
    whole = patch_all(*each.whole, other, site, each_position=False, **gradient)
    close(apart.effects.sum(), whole.effects.sum(), torch.float64)
    (table,) = apart.number_tables()  # the largest of many
    assert len(table.columns) == min(32, len(apart.places))


def test_a_channel_that_is_not_there_is_refused():
    each, other = pair(4)
    with pytest.raises(WrongUsage, match="channel=99 is out of range"):
        patch_all(*each.whole, other, "*.hidden", channel=99)


def between(gap, *changes, direction="denoise"):
    """Patches of two runs so far apart, each changing the metric by so much."""
    corrupted = torch.tensor([2.0, 4.0], dtype=torch.float64)
    ends = Recovery(corrupted + gap, corrupted)
    start = ends.corrupted if direction == "denoise" else ends.clean
    stream = PatchTarget("layers.0.residual_before")
    places = tuple(replace(stream, query=index) for index in range(len(changes)))
    after = start + torch.tensor(changes, dtype=torch.float64).unsqueeze(1)
    return Patched(places, "logit", direction, ends, after)


@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_runs_that_barely_differ_against_what_patches_change_are_warned_of(direction):
    found = between(0.01, 0.0676, -0.0173, 0.0, 0.0, 0.0, direction=direction)
    typical = (0.0676**2 + 0.0173**2) / (0.0676 + 0.0173)
    assert found.difference == pytest.approx(0.01)
    assert found.typical_change == pytest.approx(typical)
    assert found.contrast == pytest.approx(0.01 / typical)
    told = str(found)
    assert "0.01; one patch alone typically changes it by 0.0574" in told
    assert found.caution in told
    assert "barely differ, by 0.01, while a patch typically changes logit by 0.0574" in told
    effect = "-6.760" if direction == "noise" else "+6.760"
    assert f"layers.0.residual_before, position 0  {effect}  {effect} to {effect}" in told


@pytest.mark.parametrize("changes", [(1.0, 0.4, 0.0, 0.0), (1.3, -0.2), (1e-3,), (0.0, 0.0)])
def test_runs_that_differ_as_much_as_patches_change_are_not_warned_of(changes):
    found = between(1.0, *changes)
    assert found.caution == ""
    assert "barely" not in str(found)


def test_two_inputs_with_the_same_answer_are_warned_of():
    model = random_model("decoder")
    inputs = torch.randint(0, 11, (40, 5), generator=generator(0))
    with torch.no_grad():
        choices = model(inputs)[:, -1].argmax(-1)
    same = (choices == choices[0]).nonzero().flatten()[1:2]
    other = (choices != choices[0]).nonzero().flatten()[:1]
    found = patch_all(model, inputs[:1], inputs[same])
    assert f"both give the same answer, '{int(choices[0])}', so these effects" in str(found)
    assert "another answer" in found.caution
    assert "same answer" not in str(patch_all(model, inputs[:1], inputs[other]))
    clean, corrupted = inputs[[0, 0]], inputs[torch.cat([same, other])]
    assert "in 1 of 2 pairs both give the same answer" in patch_all(model, clean, corrupted).caution


def test_patches_print_as_a_short_table():
    each, other = pair(4, num_layers=3)
    for find in (patch_all, patch_paths):
        found = find(*each.whole, other)
        lines = str(found).splitlines()
        assert lines[2].startswith(f"  clean       {float(found.ends.clean.mean()):.5g}, probab")
        place, effect = found.largest(1)[0]
        assert lines[8].startswith(f"  {place}  ")
        assert f"  {effect:+.3f}  " in lines[8]
        assert len(lines) <= 18


def by_hand(each, corrupted, sender, receiver, into):
    """One path, from its definition, on a model that normalises before: the logits."""
    model, (layer, head) = each.model, (int(sender.path.split(".")[1]), sender.head)
    with torch.no_grad():
        runs = []
        sites = [site for site in site_names(model) if not site.endswith("mask")]
        for tokens in (each.inputs, corrupted):
            with record(model, sites) as recording:
                model(tokens)
            runs.append(recording)
        source, base = runs
        attention = model.layers[layer].attention
        width = base[f"{sender.path}.heads"].shape[-1]
        weight = attention.output.weight[:, head * width : (head + 1) * width]
        change = (source[f"{sender.path}.heads"] - base[f"{sender.path}.heads"])[:, head] @ weight.T
        if receiver == LOGITS:
            x = base[f"layers.{len(model.layers) - 1}.residual_after"] + change
            x = x if model.final_norm is None else model.final_norm(x)
            return model.embedding.read_out(x) if model.head is None else model.head(x)
        number = int(receiver.path.split(".")[1])
        block = model.layers[number]
        if receiver.head is None:
            read = base[f"layers.{number}.residual_between"] + change
            new = block.feed_forward(block.norm_feed_forward(read))
            put = Change(receiver.site, lambda value: new)
        else:
            part = block.attention
            read = block.norm_attention(base[f"layers.{number}.residual_before"] + change)
            made = {}
            for name, heads in zip(("query", "key", "value"), (0, 1, 1), strict=True):
                found = split_heads(getattr(part, name)(read), part.layout[heads])
                made[name] = found if name in into else base[f"{receiver.path}.{name}"]
            key, value = (share_heads(made[name], part.layout[0]) for name in ("key", "value"))
            new = attend(made["query"], key, value, "causal").output[:, receiver.head]

            def place(value):
                value = value.clone()
                value[:, receiver.head] = new
                return value

            put = Change(receiver.site, place)
        with installed(model, put):
            return model(corrupted)


@pytest.mark.parametrize(
    ("seed", "into"), [(0, ("query", "key", "value")), (1, ("query",)), (2, ("key", "value"))]
)
def test_every_path_is_what_its_definition_says(seed, into):
    each, other = pair(seed, num_layers=3, num_heads=2, norm_place="pre", positions="learned")
    heads = [(2, 1), (1, 0), (0, 0), (0, 1), (1, 1)]
    one, two, *senders = [PatchTarget(f"layers.{layer}.attention", head) for layer, head in heads]
    receivers = [one, PatchTarget("layers.1.feed_forward"), LOGITS, two]
    places = {"senders": senders, "receivers": receivers, "into": into}
    how = SweepOptions(budget=10**5 if seed % 2 else 2**29)
    found = patch_paths(*each.whole, other, **places, **each.loss, how=how)
    assert len(found.places) == 4 + 4 + 3
    own = prepare_metric(Metric("loss", each.labels), run(each))
    wanted = [by_hand(each, other, path.sender, path.receiver, into) for path in found.places]
    close(found.after, torch.stack([own(logits, run(each))[0] for logits in wanted]), torch.float64)


def test_ends_of_paths_may_be_named():
    each, other = pair(0, num_layers=2, num_heads=2)
    part = "layers.0.attention"
    ends = [PatchTarget("layers.1.attention", 1), LOGITS]
    senders = [PatchTarget(part, head) for head in range(2)]
    expected = patch_paths(*each.whole, other, senders=senders, receivers=ends, **each.loss)
    named = patch_paths(*each.whole, other, senders="0", receivers=["1.1", "logits"], **each.loss)
    assert named.places == expected.places
    assert torch.equal(named.after, expected.after)


def test_a_table_holds_the_effects_in_both_directions():
    each, other = pair(0, num_layers=2, num_heads=2)
    for direction in ("denoise", "noise"):
        found = patch_all(*each.whole, other, "heads", direction=direction, **each.loss)
        assert torch.equal(found.table().flatten(), found.effects)


@pytest.mark.parametrize("seed", sampled(range(6), 1))
def test_held_paths_add_up_where_nothing_is_bent(seed):
    """Without norms the direct paths to the logits add up to what all heads and MLPs say."""
    each, other = pair(seed, norm_place="none", final_norm=False)
    senders = [PatchTarget(f"layers.{i}.feed_forward") for i in range(each.model.config.num_layers)]
    told = {"metric": "logit", "target": each.labels}
    heads = patch_paths(*each.whole, other, **told)
    mlps = patch_paths(*each.whole, other, senders=senders, **told)
    start = patch_all(*each.whole, other, "layers.0.residual_before", each_position=False, **told)
    # The start's own direct part: what is left when every head and MLP is put back, so compare
    # through the ends.
    changes = sum((each.after - each.ends.corrupted).sum(0) for each in (heads, mlps))
    embedding = each.model.embedding(each.inputs) - each.model.embedding(other)
    logits = each.model.embedding.read_out(embedding)
    if each.model.head is not None:
        logits = embedding @ each.model.head.weight.T
    direct = logits.gather(-1, each.labels.unsqueeze(-1)).squeeze(-1).mean(1)
    close(changes + direct.detach(), heads.ends.clean - heads.ends.corrupted, torch.float64)
    assert abs(float(start.shares[0]) - 1) < 1e-12


@pytest.mark.parametrize("kind", ["encoder", "encoder-decoder", "padded decoder"])
def test_paths_go_through_every_kind_of_model(kind):
    each = given(5, kind, norm_place="post")
    inputs = each.inputs
    name = "source" if "source" in inputs else "tokens"
    other = {**inputs, name: (inputs[name] + 1) % 11}
    found = patch_paths(each.model, inputs, other, **each.loss)
    assert found.shares.isfinite().all()
    layouts = [part.layout for part in each.model.modules() if hasattr(part, "layout")]
    assert len(found.places) == sum(layout.num_heads for layout in layouts)
    assert isinstance(found.places[0], Path)
    assert str(found.places[0]).endswith("-> logits")


def test_runs_that_differ_by_rounding_alone_are_refused():
    """The metric is near 5, so that float32 tells no less than 6e-7 apart."""
    each, other = pair(4, dtype=torch.float32)
    told = {"metric": lambda logits: 5.0 + 1e-8 * logits[:, -1, 0].tanh()}
    with pytest.raises(WrongUsage, match="for the corrupted input, but for rounding"):
        patch_all(*each.whole, other, **told)


A_HEAD, LATER = PatchTarget("layers.0.attention", 0), PatchTarget("layers.1.attention", 1)


@pytest.mark.parametrize(
    ("patch", "told", "words"),
    [
        (patch_all, {"what": "streams"}, "did you mean 'stream'"),
        (patch_all, {"what": "layers.0.attention.weights"}, "patch_all does not patch"),
        (patch_all, {"what": "layers.9.residual_before"}, "no site of this model matches"),
        (patch_all, {"what": None}, "no set of patches None"),
        (patch_all, {"direction": "back"}, "no direction"),
        (patch_all, {"metric": lambda z: z[:, 0, 0] / 0}, "shares need finite numbers"),
        (patch_all, {"how": SweepOptions(budget=0)}, "budget (in bytes) must be"),
        (patch_paths, {"how": None}, "how= is such as SweepOptions"),
        (patch_paths, {"into": ["queries"]}, "did you mean 'query'"),
        (patch_paths, {"into": "queries"}, "no input of a head 'queries'"),
        (patch_paths, {"into": ()}, "by which inputs a head is reached"),
        (patch_paths, {"receivers": 3}, "receivers are heads and parts, such as"),
        (patch_paths, {"senders": "9.0"}, "9.0"),
        (patch_paths, {"senders": []}, "senders= needs at least one"),
        (patch_paths, {"senders": replace(A_HEAD, head=9)}, "has the heads 0 to"),
        (patch_paths, {"senders": replace(A_HEAD, head=None)}, "no head or feed-forward part"),
        (patch_paths, {"senders": LOGITS}, "no head or feed-forward part"),
        (patch_paths, {"senders": LATER, "receivers": A_HEAD}, "no receiver comes after"),
        (patch_paths, {"receivers": replace(LATER, query=3)}, "whole heads"),
    ],
)
def test_what_cannot_be_patched_is_said(patch, told, words):
    each = given(0, "decoder", num_layers=2)
    tokens = each.inputs % 10
    with pytest.raises(WrongUsage) as caught:
        patch(each.model, tokens, tokens + 1, **told)
    assert words in str(caught.value)


def test_inputs_that_are_equal_or_of_other_shapes_are_refused():
    each = given(0, "decoder")
    with pytest.raises(WrongUsage, match="a patch has nothing to restore"):
        patch_all(*each.whole, each.inputs)
    with pytest.raises(WrongUsage, match="of the same shapes"):
        patch_all(*each.whole, each.inputs[:, 1:])


def test_one_place_and_one_input_need_no_list():
    each, other = pair(0, num_layers=2)
    one = patch_paths(*each.whole, other, senders=A_HEAD, receivers=LATER, into="value")
    many = patch_paths(*each.whole, other, senders=[A_HEAD], receivers=[LATER], into=["value"])
    assert one.places == many.places == (Path(A_HEAD, LATER),)
    assert torch.equal(one.after, many.after)


@pytest.mark.parametrize(
    ("patch", "metric"), [(patch_all, "loss"), (patch_all, "logit_difference"), (patch_paths, "kl")]
)
def test_a_small_budget_parts_the_inputs_and_changes_nothing(patch, metric, monkeypatch):
    each = given(4, "padded decoder", num_layers=2)
    tokens = torch.randint(11, (7, 5), generator=generator(0, "tokens"))
    clean = {"tokens": tokens, "mask": padding_mask(torch.arange(7) % 5 + 1, 5)}
    corrupted = {**clean, "tokens": (tokens + 1) % 11}
    told = {"metric": metric, "target": tokens.roll(1, 1) if metric == "loss" else None}
    plain = patch(each.model, clean, corrupted, **told)
    rows, progress = [], []
    module = importlib.import_module("attnlab.edits.effects.patches")
    real = module.run_plain
    watched = lambda *given, **rest: rows.append(given[1].num_rows) or real(*given, **rest)  # noqa: E731
    monkeypatch.setattr(module, "run_plain", watched)
    how = SweepOptions(budget=1, progress=lambda *both: progress.append(both))
    found = patch(each.model, clean, corrupted, **told, how=how)
    assert max(rows) == 3
    assert found.places == plain.places
    close(found.after, plain.after, torch.float64)
    close(found.shares, plain.shares, torch.float64)
    assert progress == sorted(progress)
    assert progress[-1][0] == progress[-1][1]


def test_a_pair_of_runs_that_fits_is_made_once():
    each, other = pair(4)
    passes = []
    each.model.register_forward_hook(lambda *_: passes.append(1))
    told = each.loss
    patch_all(*each.whole, other, "heads", **told)
    count = len(passes)
    heads = each.model.config.num_layers * each.model.config.num_heads
    assert count <= 2 + heads, "clean and corrupted once, and a pass for each patch at most"


def test_a_patch_names_the_tokens_at_its_position_and_both_where_the_runs_differ():
    each = given(4, "decoder")
    other = each.inputs.clone()
    other[:, 2] = (other[:, 2] + 1) % 11
    one, another = each.inputs[:1], other[:1]
    found = patch_all(each.model, one, another)
    assert found.tokens[""][2] == f"{int(one[0, 2])} / {int(another[0, 2])}"
    assert found.tokens[""][0] == str(int(one[0, 0]))
    assert "position 2 '" in str(found)
    assert "  inputs      1 pair" in str(found)


def test_shares_are_a_table_of_layers_by_positions_or_by_heads():
    each, other = pair(4)
    for found, column, title in (
        (patch_all(*each.whole, other), "position", "layers.*.residual_before"),
        (patch_all(*each.whole, other, "heads"), "head", "Heads"),
        (patch_paths(*each.whole, other), "head", "Paths to logits"),
    ):
        (table,) = found.number_tables()
        assert table.title == title
        assert (table.row_title, table.column_title) == ("layer", column)
        values = torch.tensor(table.values, dtype=torch.float64).flatten()
        close(values, found.effects, torch.float64)


def test_positions_of_an_encoder_decoder_are_named_by_what_each_stack_reads():
    each = given(1, "encoder-decoder")
    source, target = each.inputs["source"], each.inputs["target"]
    found = patch_all(each.model, (source[:1], target[:1]), ((source[:1] + 1) % 11, target[:1]))
    titles = [table.title for table in found.number_tables()]
    assert titles == ["encoder.layers.*.residual_before", "decoder.layers.*.residual_before"]
    assert len(found.tokens["encoder"]) == source.shape[1]
    assert found.tokens["decoder"][0] == str(int(target[0, 0]))


def test_a_site_by_its_whole_name_is_patched():
    each, other = pair(4)
    embedding = patch_all(*each.whole, other, "embedding", **each.loss)
    first = patch_all(*each.whole, other, "layers.0.residual_before", **each.loss)
    close(embedding.effects, first.effects, torch.float64)
