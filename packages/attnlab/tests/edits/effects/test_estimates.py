"""Estimates of patches and curves of places patched together, each against what it stands for."""

from contextlib import nullcontext

import pytest
import torch

from attnlab.edits import Patch
from attnlab.edits.application import edit
from attnlab.edits.effects import PatchTarget, patch_all
from attnlab.edits.effects.curves import patch_together
from attnlab.edits.effects.metrics import Metric, prepare_metric
from attnlab.errors import WrongUsage
from attnlab.look.recording import record
from attnlab.sites import Hook, installed
from tests.edits.effects.checks import close, pair
from tests.planting import fault_tests, faults_in
from tests.random_models import run
from tests.sampling import sampled

SMOOTH = {"activation": "gelu", "num_layers": 2, "positions": "learned"}


class Nudged(Hook):
    """Moves the values of a site by a share of their change, or the embedding alone."""

    def __init__(self, **changes):
        self.changes = {name.replace("__", "."): change for name, change in changes.items()}

    def wants(self, site):
        return site in self.changes

    def visit(self, site, value):
        return value + self.changes[site]


def measured(each, other, changes):
    """The metric of the corrupted run where values are changed, (row,)."""
    plain = run(each)
    own = prepare_metric(Metric("loss", each.labels), plain, each.real)
    with torch.no_grad(), installed(each.model, Nudged(**changes)):
        return own(each.model(other), plain)[0]


def check_slope(seed):
    """By gradient: how fast the metric of the corrupted run changes where a value begins to move,
    times the whole way."""
    each, other = pair(seed, **SMOOTH)
    found = patch_all(*each.whole, other, "heads", estimate="gradient", **each.loss)
    runs = []
    for tokens in (each.inputs, other):
        with record(each.model, "*.heads") as recording, torch.no_grad():
            each.model(tokens)
        runs.append(recording)
    for place, after in zip(found.places, found.after, strict=True):
        change = torch.zeros_like(runs[0][place.site])
        change[place.index] = (runs[0][place.site] - runs[1][place.site])[place.index]
        small = 1e-4 * change
        ahead, behind = (measured(each, other, {place.site: step}) for step in (small, -small))
        slope = (ahead - behind) / 2e-4
        assert torch.allclose(after, found.ends.corrupted + slope, atol=1e-5, rtol=1e-4)


def check_whole_way(seed):
    """Integrated: over all positions of the first layer's stream the estimates add up to what the
    runs differ by."""
    each, other = pair(seed, **SMOOTH)
    found = patch_all(*each.whole, other, "stream", estimate="integrated", **each.loss)
    changes = found.after - found.ends.corrupted
    wanted = found.ends.clean - found.ends.corrupted
    first = [place.path.startswith("layers.0.") for place in found.places]
    assert torch.allclose(changes[first].sum(0), wanted, rtol=0.02, atol=0.02)


def check_curves(seed):
    """Each point is what the edits give together; the ends are the two runs."""
    each, other = pair(seed, **SMOOTH)
    order = patch_all(*each.whole, other, "heads", **each.loss)
    curves = patch_together(*each.whole, other, order, **each.loss)
    places = [place for place, _ in order.largest(len(order.places))]
    assert list(curves.places) == places
    plain = run(each)
    own = prepare_metric(Metric("loss", each.labels), plain, each.real)
    with record(each.model, "*.heads") as recording, torch.no_grad():
        each.model(each.inputs)
    for point, number in enumerate(curves.numbers):
        edits = [Patch(site=p.site, head=p.head, recording=recording) for p in places[:number]]
        with edit(each.model, *edits, certify=False) if edits else nullcontext(), torch.no_grad():
            logits = each.model(other)
        close(curves.insertion.after[point], own(logits, plain)[0], torch.float64)
    close(curves.insertion.after[0], curves.insertion.ends.corrupted, torch.float64)
    close(curves.deletion.after[0], curves.deletion.ends.clean, torch.float64)


CHECKS = {"slope": check_slope, "whole": check_whole_way, "curves": check_curves}


@pytest.mark.parametrize("seed", sampled([0, 1, 2], 1))
@pytest.mark.parametrize("name", CHECKS)
def test_estimates_and_curves_are_what_they_stand_for(name, seed):
    CHECKS[name](seed)


def test_what_is_linear_is_estimated_exactly():
    each, other = pair(3, norm_place="none", final_norm=False, num_layers=1)
    measure = {"metric": "logit", "target": each.labels}
    for estimate in ("gradient", "integrated"):
        exact = patch_all(*each.whole, other, "mlps", **measure)
        found = patch_all(*each.whole, other, "mlps", estimate=estimate, **measure)
        close(found.after, exact.after, torch.float64)
        assert "not patched" in str(found)
        assert "not patched" not in str(exact)


def test_the_gradients_of_parameters_stay_as_they_are():
    each, other = pair(0)
    patch_all(*each.whole, other, "heads", estimate="gradient", **each.loss)
    assert all(parameter.grad is None for parameter in each.model.parameters())


def test_runs_read_together_are_those_read_one_after_the_other(monkeypatch):
    each, other = pair(1, **SMOOTH)
    options = {"estimate": "integrated", **each.loss}
    together = patch_all(*each.whole, other, "heads", **options)
    monkeypatch.setattr("attnlab.edits.effects.estimates._MOST_TOKENS", 1)
    close(patch_all(*each.whole, other, "heads", **options).after, together.after, torch.float64)


def test_what_cannot_be_estimated_is_said():
    each, other = pair(0)
    right = run(each).argmax(-1)  # so that both runs differ
    with pytest.raises(WrongUsage, match="accuracy has no gradient"):
        patch_all(*each.whole, other, metric="accuracy", target=right, estimate="gradient")
    with pytest.raises(WrongUsage, match="did you mean 'gradient'"):
        patch_all(*each.whole, other, estimate="gradients", **each.loss)
    with pytest.raises(WrongUsage, match="order= is what patch_all returns"):
        patch_together(*each.whole, other, [], **each.loss)


def test_an_area_is_one_half_where_all_places_do_their_share():
    each, other = pair(3, norm_place="none", final_norm=False, num_layers=1)
    measure = {"metric": "logit", "target": each.labels}
    order = [PatchTarget("layers.0.feed_forward.output", None, 0)] * 2
    curves = patch_together(*each.whole, other, order, **measure)
    one, *_, last = curves.insertion.effects.tolist()
    assert one == 0.0
    assert curves.areas["insertion"].value == pytest.approx(0.75 * last)  # the first does it all
    assert "patched together" in str(curves)
    assert [row["places"] for row in curves.rows()] == [0, 1, 2]


FAULTS = """
the run that is patched and the other one change places | estimates | slope
- change = source.values[site].double() - base.values[site].double()
+ change = base.values[site].double() - source.values[site].double()
gradients are taken in the other run | estimates | slope
- ends = base.values[name], source.values[name]
+ ends = source.values[name], base.values[name]
gradients are added up | estimates | whole
- return ((places + 1) / 2).tolist(), (weights / 2).tolist()
+ return ((places + 1) / 2).tolist(), weights.tolist()
the way begins with its end | estimates | whole
- return ((places + 1) / 2).tolist(), (weights / 2).tolist()
+ return ((places + 1) / 8).tolist(), (weights / 2).tolist()
runs that are read together are all the first | estimates | whole
- mixed[name] = torch.cat([torch.lerp(*ends, share) for share in shares])
+ mixed[name] = torch.cat([torch.lerp(*ends, share) for share in shares[:1] * len(shares)])
all places from the first on | curves | curves
- hook = _Together(pair.source.values, places[:number])
+ hook = _Together(pair.source.values, places[: number + 1])
both directions are one | curves | curves
- return Curves(places, tuple(points), curve("denoise"), curve("noise"))
+ return Curves(places, tuple(points), curve("denoise"), curve("denoise"))
the least effect comes first | curves | curves
- order = [place for place, _ in order.largest(len(order.places))]
+ order = [place for place, _ in order.largest(len(order.places))][::-1]
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS, "edits.effects."), lambda name: list(map(CHECKS[name], range(3)))
)
