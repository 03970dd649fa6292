"""A pass lets go of what it computed, layer by layer: nothing waits for the garbage collector."""

import gc
import weakref

import pytest
import torch

from attnlab.edits.effects.baseline import run_plain
from attnlab.look.inputs import Call
from attnlab.sites import Hook, installed
from tests.planting import noticed
from tests.pretrained.trying import tried
from tests.sampling import sampled

pytest.importorskip("transformers")


class _Holding(Hook):
    """Counts the queries of earlier attentions that are still there when the next one comes."""

    def __init__(self):
        self.changes = False
        self.most, self._seen = 0, list[weakref.ref[torch.Tensor]]()

    def wants(self, site):
        return site.endswith("heads")

    def watch(self, part, call):
        self._seen.append(weakref.ref(call.query))
        self.most = max(self.most, self.now())

    def now(self):
        return sum(each() is not None for each in self._seen)


def _held(name):
    each, holding = tried(name), _Holding()
    gc.collect()
    gc.disable()
    try:
        with installed(each.model, holding):
            each.run()
        return holding.most, holding.now()
    finally:
        gc.enable()


@pytest.mark.parametrize("name", sampled(["llama", "t5", "gpt2", "falcon", "bloom"], 1))
def test_queries_are_gone_when_the_next_attention_comes(name):
    most, after = _held(name)
    assert most <= 2, f"{most} attentions held at once"
    assert after == 0


def test_a_function_that_holds_what_holds_it_is_noticed():
    line = "output, weights[0] = call"
    with noticed("pretrained.backends.registry", line, line.replace("call", "attention and call")):
        test_queries_are_gone_when_the_next_attention_comes("gpt2")


def test_knock_outs_keep_no_more_of_the_plain_pass_than_they_need():
    each = tried("gpt2")
    base = run_plain(each.model, Call.of(each.inputs))
    assert base.calls == {}, "queries, keys and values stay"
    whole = base.logits
    base.keep_last(1)
    assert torch.equal(base.logits, whole[:, -1:])
    assert base.logits.untyped_storage().nbytes() < whole.untyped_storage().nbytes()
