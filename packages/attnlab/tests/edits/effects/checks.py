"""What is checked of effects, as functions: tests run them, and planted faults must fail them."""

import torch

from attnlab.edits import CutEdge, Edit, ZeroHead, ZeroSite
from attnlab.edits.application import edit
from attnlab.edits.effects import ablate
from attnlab.edits.effects.metrics import Metric, prepare_metric
from attnlab.look.lens import direct_logits
from attnlab.seeds import generator
from tests.random_models import given, run

EXACT = {torch.float64: 1e-12, torch.float32: 1e-5}


def pair(seed, **fixed):
    """Draw a decoder with its inputs, and other inputs to hold it against."""
    each = given(seed, "decoder", **fixed)
    return each, (each.inputs + 1) % 11


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


def check_sweep(seed, what, metric="loss", most=30, **fixed):
    """A sweep gives what the edits give one by one; of many cases so many are compared."""
    each = given(seed, **fixed)
    told = {} if metric in ("logit", "kl", "logit_difference") else {"target": each.labels}
    found = ablate(*each.whole, what, metric=metric, **told)
    some = torch.randperm(len(found.places), generator=generator(seed, "some"))[:most]
    edits = edits_of(found)
    alone = one_by_one(each, [edits[index] for index in some.tolist()], metric, **told)
    close(found.after[some], alone, torch.float64)
    own = prepare_metric(Metric(metric, **told), run(each), each.real)
    assert torch.equal(found.before, own(run(each), run(each))[0])


def check_attribution(seed, kind, dtype=torch.float64):
    """The shares of all parts sum to the logit, and each head's is what its writing gives."""
    each = given(seed, kind, dtype)
    found = direct_logits(*each.whole)
    assert found.error <= EXACT[dtype] * max(1.0, float(found.logits.abs().max()))
    logits = run(each)
    logits = logits if logits.dim() == 2 else each.last(logits)
    close(found.logits, logits.amax(-1), dtype)
