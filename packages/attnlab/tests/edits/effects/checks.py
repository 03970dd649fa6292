"""What is checked of effects, as functions: tests run them, and planted faults must fail them."""

import torch

from attnlab.edits import CutEdge, Edit, Patch, RedirectToFirst, UniformPattern, ZeroHead, ZeroSite
from attnlab.edits.application import edit
from attnlab.edits.effects import SignificanceRule, ablate, patch_all, pattern_effects
from attnlab.edits.effects.metrics import Metric, prepare_metric
from attnlab.edits.effects.significance import adjusted
from attnlab.look.lens import direct_logits
from attnlab.look.recording import record
from attnlab.seeds import generator
from attnlab.sites import Hook, explicit_attention, installed
from tests.random_models import given, run

EXACT = {torch.float64: 1e-12, torch.float32: 1e-5}


def one_by_one(each, edits, metric, **told):
    """Measure each edit by itself, a whole forward pass each: (edit, row)."""
    plain = run(each)
    own = prepare_metric(Metric(metric, **told), plain, each.real)
    found = []
    for own_edit in edits:
        with edit(each.model, own_edit, certify=False):
            found.append(own(run(each), plain)[0])
    return torch.stack(found)


def close(found, wanted, dtype):
    """Assert that two agree to what this dtype can hold."""
    scale = max(1.0, float(wanted.abs().max()))
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) <= EXACT[dtype] * scale


def edits_of(found):
    """Return the edits that do what each case of a sweep does."""
    own = {"mlps": ".feed_forward.output", "attentions": ".output"}
    made: list[Edit] = []
    for place in found.places:
        heads = {} if place.head is None else {"head": place.head}
        if found.what == "heads":
            made.append(ZeroHead(site=place.path, **heads))
        elif "edges" in found.what:
            made.append(CutEdge(site=place.path, query=place.query, key=place.key, **heads))
        else:
            made.append(ZeroSite(site=place.path + own[found.what]))
    return made


def check_sweep(seed, what, metric="loss", most=30):
    """A sweep gives what the edits give one by one; of many cases so many are compared."""
    each = given(seed)
    told = {} if metric in ("logit", "kl", "logit_difference") else {"target": each.labels}
    found = ablate(*each.whole, what, metric=metric, **told)
    some = torch.randperm(len(found.places), generator=generator(seed, "some"))[:most]
    edits = edits_of(found)
    alone = one_by_one(each, [edits[index] for index in some.tolist()], metric, **told)
    close(found.after[some], alone, torch.float64)
    own = prepare_metric(Metric(metric, **told), run(each), each.real)
    assert torch.equal(found.before, own(run(each), run(each))[0])


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


def check_layers(seed):
    """A layer taken out gives on what it was given."""
    each = given(seed)
    found = ablate(*each.whole, "layers", **each.loss)
    own = prepare_metric(Metric("loss", each.labels), run(each))
    for place, after in zip(found.places, found.after, strict=True):
        with installed(each.model, Skipping(place.path)):
            close(after, own(run(each), run(each))[0], torch.float64)


def check_patches(seed, what):
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


def check_ends(seed):
    """All of the stream before the first block, patched, brings everything back."""
    each = given(seed, "decoder", positions="rotary")
    corrupted = (each.inputs + 1) % 11
    told = {**each.loss, "each_position": False}
    first = "layers.0.residual_before"
    assert abs(float(patch_all(*each.whole, corrupted, first, **told).shares[0]) - 1.0) < 1e-12
    noised = patch_all(*each.whole, corrupted, first, **told, direction="noise")
    assert abs(float(noised.shares[0])) < 1e-12


def check_controls(seed):
    """The controls that are edits too give what these give one by one."""
    each = given(seed)
    kinds = {"uniform": UniformPattern, "first": RedirectToFirst, "zeroed": ZeroHead}
    found = pattern_effects(
        *each.whole, **each.loss, controls=tuple(kinds), rule=SignificanceRule(draws=50)
    )
    assert bool(((found.largest > 0) & (found.largest <= 1) & (found.entropy >= 0)).all())
    places = [{"site": head.path, "head": head.head} for head in found.heads]
    edits = [kind(**place) for place in places for kind in kinds.values()]
    with explicit_attention(each.model):
        after = one_by_one(each, edits, "loss", target=each.labels)
    close(found.effects.flatten(0, 1) + found.before, after, torch.float64)


def check_holm(p):
    """Holm's p is the largest Bonferroni p of all sets that hold the test."""
    found = adjusted(p, "holm")
    for own in range(len(p)):
        numbers = [number for number in range(2 ** len(p)) if number >> own & 1]
        sets = [[i for i in range(len(p)) if number >> i & 1] for number in numbers]
        wanted = max(min(1.0, len(members) * float(p[members].min())) for members in sets)
        assert abs(float(found[own]) - wanted) < 1e-12


def check_bh(p):
    """Benjamini and Hochberg: up to the last k with p(k) <= k/m · level."""
    found = adjusted(p, "bh")
    ordered = p.sort().values
    for level in (0.01, 0.05, 0.1, 0.2, 0.5, 0.9):
        under = [k for k in range(1, len(p) + 1) if float(ordered[k - 1]) <= k / len(p) * level]
        wanted = p <= ordered[under[-1] - 1] if under else torch.zeros_like(p, dtype=torch.bool)
        assert torch.equal(found <= level, wanted)


def check_attribution(seed, kind, dtype=torch.float64):
    """The shares of all parts sum to the logit, and each head's is what its writing gives."""
    each = given(seed, kind, dtype)
    found = direct_logits(*each.whole)
    assert found.error <= EXACT[dtype] * max(1.0, float(found.logits.abs().max()))
    logits = run(each)
    logits = logits if logits.dim() == 2 else each.last(logits)
    close(found.logits, logits.amax(-1), dtype)
