"""`load`: a run of ours, a live module, a folder; and a sentence for anything else."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.model_loader import is_ours
from attnlab.pretrained.model_files import header


class Attention(nn.Module):
    """Somebody's own: a multi-head attention by hand."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2)]
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_live_module_gets_doors_and_stays_as_it_is():
    pytest.importorskip("transformers")
    from tests.pretrained.speaking import made

    foreign, tokenizer = made("bert")
    before = {name: value.clone() for name, value in foreign.state_dict().items()}
    with (
        pytest.raises(WrongUsage, match=r"attnlab\.load\(model\) gives it hook points"),
        attnlab.record(foreign, "*"),
    ):
        pass
    model = attnlab.load(foreign, tokenizer=tokenizer)
    assert model.foreign is foreign
    assert model.inputs("the cat")["input_ids"].shape == (1, 4)
    assert all(torch.equal(before[name], value) for name, value in foreign.state_dict().items())
    with pytest.raises(WrongUsage, match="open already"):
        attnlab.load(foreign, dtype="float64")


def test_a_module_whose_inputs_nobody_knows_asks_for_an_example():
    module = Attention().eval()
    with pytest.raises(WrongUsage, match="example"):
        attnlab.load(module)


@pytest.mark.parametrize("name", ["", "no such thing", "nowhere.gguf", "a/b/c", "\0"])
def test_a_name_of_nothing_gets_one_sentence(name, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CouldNotRun, match="folder"):
        attnlab.load(name)


def test_what_is_no_name_gets_one_sentence():
    for thing in (3, None, {"a": 1}):
        with pytest.raises(WrongUsage, match="a folder, a file, a hub id or a torch module"):
            attnlab.load(thing)


def test_a_strangers_folder_is_told_from_a_run_without_reading_it_through(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_bytes(b'{"experiment": [' + b"[]," * 600_000 + b"[]]}")
    with monkeypatch.context() as patch:
        patch.setattr(header.json, "loads", None)  # it would take hundreds of megabytes
        assert not is_ours(tmp_path)
    for text in ("[1, 2", '{"model_type": "gpt2"}'):
        (tmp_path / "config.json").write_text(text)
        assert not is_ours(tmp_path)
    assert not is_ours(tmp_path)
    with open(tmp_path / "config.json", "wb") as file:
        file.truncate(2**34)
    assert not is_ours(tmp_path)


@pytest.mark.parametrize("name", ["runs/sortin", "sorting"])
def test_a_run_that_was_perhaps_meant_is_named(name, tmp_path, monkeypatch):
    (tmp_path / "runs" / "sorting").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CouldNotRun, match=r"^there is no folder.*\. Did you mean runs/sorting\?$"):
        attnlab.load(name)


def test_the_model_of_a_run_reads_texts_and_names_its_tokens(sorter):
    model = attnlab.load(sorter)
    question = attnlab.ask(sorter, "cab")
    found = attnlab.record(model, "cab", "*.weights")
    assert found.tokens("layers.0.attention.weights").query[:4] == ["c", "a", "b", "SEP"]
    wanted = attnlab.recorded(question, "*.weights")
    assert all(torch.equal(found[site], wanted[site]) for site in wanted)
    in_memory = attnlab.run("sorting", steps=2, evaluate_every=1).model
    for opened in (attnlab.open(sorter).model, in_memory):
        recording = attnlab.record(opened, torch.tensor([[3, 1, 2, 0]]))
        assert recording.tokens("layers.0.attention.weights").key == ["c", "a", "b", "SEP"]
    ablation = attnlab.ablate(model, "cab")
    assert ablation.before.equal(attnlab.ablate(model, [3, 1, 2, 0]).before)
    assert "SEP 0." in str(attnlab.logit_lens(model, "cab"))
    with pytest.raises(WrongUsage, match="expected 3 letters from a to c"):
        attnlab.record(model, "xyz")


def test_a_saved_model_without_its_run_reads_ids_alone(sorter, tmp_path):
    attnlab.save_model(attnlab.load(sorter), tmp_path / "alone")
    model = attnlab.load(tmp_path / "alone")
    with pytest.raises(WrongUsage, match="give ids"):
        attnlab.record(model, "cab")
    assert attnlab.record(model, [3, 1, 2, 0])["logits"].shape == (1, 4, 4)
