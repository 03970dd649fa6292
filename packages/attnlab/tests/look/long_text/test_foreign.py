"""Long documents read by foreign models: every backend, windows, sinks, two stacks."""

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.look.long_text import summarize_document
from tests.look.long_text.test_documents import SMALL, blocks_run, files, stopped

pytest.importorskip("transformers")

from attnlab.pretrained.attach import attach
from tests.pretrained.families import FAMILIES
from tests.pretrained.trying import tried
from tests.sampling import sampled

NAMES = ["mistral", "gpt_oss", "t5", "bloom", "modernbert", "deberta_v2", "llama", "gemma2", "bert"]
LENGTH = 40


@pytest.fixture
def ids():
    return torch.randint(3, 101, (LENGTH,), generator=torch.Generator().manual_seed(0))


def weights_of(model, parts, ids):
    more = {"decoder_input_ids": ids[None, :1]} if "encoder" in model.structure.names else {}
    with torch.no_grad(), record(model, [f"{part}.weights" for part in parts]) as recording:
        model(input_ids=ids[None], **more)
    return {part: recording[f"{part}.weights"][0] for part in parts}


@pytest.mark.parametrize("name", sampled(NAMES, 3))
def test_every_family_is_summarised_as_it_is_recorded_stopped_or_not(name, ids, tmp_path):
    model = tried(name).model
    document = summarize_document(model, ids, out=tmp_path / "whole", reduce=SMALL)
    for part, weights in weights_of(model, document.parts, ids).items():
        summary = document.summary(part)
        assert torch.allclose(summary.largest, weights.amax(-1), atol=1e-6)
        assert torch.allclose(summary.entropy, torch.special.entr(weights).sum(-1), atol=3e-6)
        hidden = document.hidden(part)
        cells = weights.reshape(len(weights), 8, 5, 8, 5).amax((0, 2, 4))
        assert hidden is None or not bool(cells[hidden].any())
        assert hidden is not None or bool((cells > 0).all())
    stopped(model, ids, tmp_path / "a", 1)
    summarize_document(model, ids, out=tmp_path / "a", reduce=SMALL)
    assert files(tmp_path / "a") == files(tmp_path / "whole")


def test_no_logits_are_made(ids, tmp_path):
    model = tried("llama").model
    run = lambda: summarize_document(model, ids, out=tmp_path / "a")  # noqa: E731
    assert blocks_run([model.foreign.lm_head], run) == []


def test_more_than_the_model_was_made_for_is_refused_unless_one_says_so(tmp_path):
    ids = torch.randint(3, 101, (70,))
    model = tried("llama").model
    with pytest.raises(WrongUsage, match=r"70 tokens, and the model was made for 64.*beyond"):
        summarize_document(model, ids, out=tmp_path / "a")
    assert summarize_document(model, ids, out=tmp_path / "a", beyond=True).length == 70
    model = tried("bert").model
    with pytest.raises(WrongUsage, match="more than the model's 64 positions"):
        summarize_document(model, ids, out=tmp_path / "b", beyond=True)


def test_no_stream_of_a_block_that_is_done_is_held(ids):
    model = attach(FAMILIES["llama"].build(num_hidden_layers=3))
    held = []
    layer = model.foreign.model.layers[2]
    hook = layer.register_forward_pre_hook(lambda *_: held.append(len(model.current_pass.stream)))
    with torch.no_grad(), record(model, "*weights"):
        model(input_ids=ids[None])
        assert held == [0]
        assert not model.current_pass.stream
    hook.remove()


def test_a_foreign_model_of_other_settings_does_not_go_on(ids, tmp_path):
    stopped(attach(FAMILIES["mistral"].build()), ids, tmp_path / "a", 1)
    model = attach(FAMILIES["mistral"].build(sliding_window=9))
    with pytest.raises(WrongUsage, match="another document: the model"):
        summarize_document(model, ids, out=tmp_path / "a", reduce=SMALL)
    moved = attach(FAMILIES["mistral"].build())
    moved.foreign.config.name_or_path = "/somewhere/else"
    assert summarize_document(moved, ids, out=tmp_path / "a", reduce=SMALL).is_done
