"""Long documents: what is written is what a recording shows, in bounded memory."""

import json
from contextlib import ExitStack

import pytest
import torch

from attnlab.core import store
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import record
from attnlab.look.collector import Collector, run_collector
from attnlab.look.long_text import open_document, summarize_document
from attnlab.look.long_text.inputs import check_explicit, summary_bytes
from attnlab.look.long_text.summarize import hidden_cells
from attnlab.look.summaries import Summarize
from attnlab.parts.masks import causal_mask
from attnlab.sites import AttentionCall
from tests.random_models import new_model

LENGTH = 50
SMALL = Summarize(tiles=8)
SETTINGS = {"vocab_size": 23, "max_length": 64, "d_model": 12, "num_layers": 4}
HEADS = {"num_heads": 4, "num_kv_heads": 2}


def decoder(**settings):
    return new_model("decoder", **SETTINGS, **HEADS, **{"positions": "rotary", **settings})


@pytest.fixture
def model():
    return decoder()


@pytest.fixture
def ids():
    return torch.randint(0, 23, (LENGTH,), generator=torch.Generator().manual_seed(0))


def files(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "layers").iterdir())}


def stopped(model, ids, out, after, **options):
    """Summarize until some layers are done, and be interrupted there."""

    def stop(progress):
        if progress.done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        summarize_document(model, ids, out=out, reduce=SMALL, progress=stop, **options)


def blocks_run(parts, run):
    """Return the numbers of the parts that were computed, in order."""
    found = []
    with ExitStack() as stack:
        for number, part in enumerate(parts):
            note = lambda *_, number=number: found.append(number)  # noqa: E731
            stack.callback(part.register_forward_pre_hook(note).remove)
        run()
    return found


def attentions(model):
    return [block.attention for block in model.layers]


def check_against_recording(model, document, ids):
    with torch.no_grad(), record(model, "layers.*.attention.weights") as recording:
        model.eval()(ids.unsqueeze(0))
    assert len(document.parts) == 4
    for part in document.parts:
        weights, summary = recording[f"{part}.weights"][0], document.summary(part)
        entropy = torch.special.entr(weights).sum(-1)
        assert torch.allclose(summary.entropy, entropy, atol=2e-6)
        assert torch.allclose(summary.effective_keys, entropy.exp(), rtol=1e-5)
        assert torch.allclose(summary.largest, weights.amax(-1), atol=1e-6)
        corner = weights[:, :7, :7].amax((-2, -1))
        assert torch.allclose(summary.map_max[:, 0, 0], corner, atol=1e-6)
        assert torch.equal(summary.top_keys[:, -1, 0], weights[:, -1].argmax(-1))
        rows = [each for each in document.table() if each["layer"] == part.split(".")[1]]
        for head, row in enumerate(rows):
            assert row["head"] == head
            assert row["entropy"] == pytest.approx(float(entropy[head].mean()), abs=2e-6)
            own = weights[head].diagonal().mean()
            assert row["own"] == pytest.approx(float(own), abs=1e-6)


def test_what_is_written_of_every_head_is_what_a_recording_shows(model, ids, tmp_path):
    document = summarize_document(model, ids, out=tmp_path / "a", reduce=SMALL)
    check_against_recording(model, document, ids)
    assert len(document.table()) == 16
    assert document.measure("entropy").shape == (4, 4)
    assert document.tokens == [str(token) for token in ids.tolist()]
    assert document.is_done
    assert not document.unfinished


def test_summaries_of_the_layer_before_are_caught(model, ids, tmp_path, monkeypatch):
    whole, last = Summarize.__call__, []

    def late(self, call):
        last.append(whole(self, call))
        return last[-2:][0]

    monkeypatch.setattr(Summarize, "__call__", late)
    document = summarize_document(model, ids, out=tmp_path / "a", reduce=SMALL)
    with pytest.raises(AssertionError):
        check_against_recording(model, document, ids)


@pytest.mark.parametrize("after", [1, 3])
def test_what_was_stopped_goes_on_to_the_same_bytes(model, ids, tmp_path, monkeypatch, after):
    summarize_document(model, ids, out=tmp_path / "whole", reduce=SMALL)
    stopped(model, ids, tmp_path / "a", after)
    partial = open_document(tmp_path / "a")
    assert (len(partial.parts), partial.is_done) == (after, False)
    assert len(partial.table()) == 4 * after
    summaries, whole = [], Summarize.__call__
    counted = lambda self, call: summaries.append(1) or whole(self, call)  # noqa: E731
    monkeypatch.setattr(Summarize, "__call__", counted)
    summarize_document(model, ids, out=tmp_path / "a", reduce=SMALL)
    assert files(tmp_path / "a") == files(tmp_path / "whole")
    assert len(summaries) == 4 - after
    again = lambda: summarize_document(model, ids, out=tmp_path / "a", reduce=SMALL)  # noqa: E731
    assert blocks_run(attentions(model), again) == []


def test_a_damaged_layer_is_made_anew(model, ids, tmp_path):
    summarize_document(model, ids, out=tmp_path / "whole", reduce=SMALL)
    stopped(model, ids, tmp_path / "a", 3)
    (tmp_path / "a" / "layers" / "001.safetensors").write_bytes(b"damaged")
    summarize_document(model, ids, out=tmp_path / "a", reduce=SMALL)
    assert files(tmp_path / "a") == files(tmp_path / "whole")
    (tmp_path / "a" / "layers" / "001.safetensors").write_bytes(b"damaged")
    with pytest.raises(CouldNotRun, match="checksum"):
        open_document(tmp_path / "a").summary(1)


def test_only_chosen_layers_are_done_and_the_model_runs_no_further(model, ids, tmp_path):
    some = lambda: summarize_document(model, ids, out=tmp_path / "a", layers=["1", "0"])  # noqa: E731
    assert blocks_run(attentions(model), some) == [0, 1]
    assert open_document(tmp_path / "a").parts == ("layers.0.attention", "layers.1.attention")
    with pytest.raises(WrongUsage, match="nor a layer"):
        summarize_document(model, ids, out=tmp_path / "b", layers=["7"])


def test_a_budget_that_does_not_do_is_refused_before_anything_runs(model, ids, tmp_path):
    run = []
    model.register_forward_pre_hook(lambda *_: run.append(1))
    with pytest.raises(CouldNotRun, match="a layer's summary"):
        summarize_document(model, ids, out=tmp_path / "a", budget="20 KiB")
    assert not run
    assert not (tmp_path / "a").exists()


def test_an_attention_that_needs_all_pairs_is_refused_before_they_are_made():
    rows = torch.empty(1, 2, 1000, 4)
    call = AttentionCall(rows, rows, rows, "causal", None, is_explicit=True)
    with pytest.raises(CouldNotRun, match=r"22\.9 MiB .*; the budget is 20\.0 MiB"):
        check_explicit("layers.0.attention", call, 20 * 2**20)
    check_explicit("layers.0.attention", call, 30 * 2**20)
    check_explicit("layers.0.attention", call._replace(is_explicit=False), 1)


def test_the_bytes_of_a_summary_are_told_before(model, ids, tmp_path):
    summarize_document(model, ids, out=tmp_path / "a", reduce=Summarize(tiles=8, top=3))
    size = len(files(tmp_path / "a")["000.safetensors"])
    told = summary_bytes(4, LENGTH, 8, 3)
    # names and shapes come on top; one number is made when asked for, and not kept
    assert size - 2000 <= told <= size + 4 * 4 * LENGTH


def test_another_document_is_refused_by_what_differs(model, ids, tmp_path):
    stopped(model, ids, tmp_path / "a", 1)
    for other, options, what in (
        (ids.flip(0), {}, "the text"),
        (ids[:-1], {}, "the length"),
        (ids, {"reduce": Summarize(tiles=9)}, "tiles"),
        (ids, {"reduce": Summarize(tiles=8, top=3)}, "top"),
        (ids, {"layers": ["0"]}, "layers"),
    ):
        with pytest.raises(WrongUsage, match=f"another document: {what}"):
            summarize_document(model, other, out=tmp_path / "a", **{"reduce": SMALL, **options})


def exchanged(model):
    """Exchange two numbers in the middle of a matrix: neither its ends nor its sum change."""
    weight = model.layers[2].feed_forward.inner.weight.data.view(-1)
    weight[[40, 41]] = weight[[41, 40]]
    return model


def test_a_model_that_differs_in_anything_does_not_go_on(model, ids, tmp_path):
    stopped(model, ids, tmp_path / "a", 1)
    for other in (decoder(temperature=2.0), decoder(activation="gelu"), exchanged(decoder())):
        with pytest.raises(WrongUsage, match="another document: the model"):
            summarize_document(other, ids, out=tmp_path / "a", reduce=SMALL)


def test_the_room_on_the_disk_is_that_of_the_summaries(ids, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(store, "check_room", lambda path, size, what: asked.append(size))
    document = summarize_document(decoder(), ids, out=tmp_path / "a", reduce=SMALL)
    assert asked[0] > sum(len(each) for each in files(document.folder).values()) // 2


def test_what_is_no_document_is_refused(model, tmp_path):
    tensors = [torch.zeros(2, 5).long(), torch.zeros(5), torch.zeros(0).long()]
    for odd in (*tensors, [], "text", None, 5, ["a"], [2**70], [1, 23], [-1, 2], [[1], [2, 3]]):
        with pytest.raises(WrongUsage):
            summarize_document(model, odd, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    with pytest.raises(CouldNotRun, match="there is no document"):
        open_document(tmp_path)
    for content in ({"format": "other"}, {"format": "attnlab document 1"}):
        (tmp_path / "document.json").write_text(json.dumps(content))
        with pytest.raises(CouldNotRun, match=r"no document|damaged"):
            open_document(tmp_path)


def test_dropout_is_off_and_the_model_is_left_as_it_was(ids, tmp_path):
    model = decoder(dropout=0.5).train()
    model.layers[1].eval()
    before = [module.training for module in model.modules()]
    document = summarize_document(model, ids, out=tmp_path / "a", reduce=SMALL)
    assert [module.training for module in model.modules()] == before
    check_against_recording(model, document, ids)


def test_an_attention_that_never_comes_is_named(model, ids):
    collector = Collector(["layers.9.attention"])
    with pytest.raises(CouldNotRun, match=r"without layers\.9\.attention; 1 of 1 are missing"):
        run_collector(model, collector, (ids[None],), {})


def test_progress_tells_how_far_it_is(model, ids, tmp_path):
    told = []
    summarize_document(model, ids, out=tmp_path / "a", progress=told.append)
    assert [(each.done, each.total) for each in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert told[-1].left == 0
    assert all(each.left > 0 for each in told[:-1])


@pytest.mark.parametrize(
    ("queries", "keys", "cells"),
    [(7, 7, (2, 3)), (5, 9, (2, 2)), (16, 16, (1, 1)), (9, 9, (9, 9)), (10, 10, (4, 3))],
)
def test_cells_hidden_by_the_word_causal_are_those_that_its_mask_hides(queries, keys, cells):
    query, key = torch.zeros(1, 1, queries, 4), torch.zeros(1, 1, keys, 4)
    mask = causal_mask(queries, keys)
    rows = [row.any(0).split(cells[1]) for row in mask.split(cells[0])]
    hidden = [[not bool(part.any()) for part in row] for row in rows]
    for each in ("causal", mask):
        found = hidden_cells(AttentionCall(query, key, key, each, 1.0, False), cells)
        assert (found is not None) == any(map(any, hidden))
        assert found is None or found.tolist() == hidden
