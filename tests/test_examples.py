"""The examples run, write what they say, and find what their heads claim, on a short sample."""

import csv
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from attnlab.experiments.sorting.config import SortingConfig
from attnlab.models import Decoder, EncoderDecoder, EncoderDecoderConfig
from attnlab.seeds import isolated
from attnlab.tasks import lookup

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(folder, name):
    with (folder / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert (folder / f"{name}.png").stat().st_size > 5_000
    assert (folder / f"{name}.svg").read_text().startswith("<?xml")
    return rows


@pytest.mark.slow
def test_the_controls_tell_which_heads_sort(tmp_path, capsys):
    found = example("which_heads_sort").main(["--seeds", "2", "--out", str(tmp_path)])
    rows = written(tmp_path, "heads")
    assert len(rows) == len(found) * 2 * 7
    assert all(each.needed for each in found)  # some head of every sorter does the work
    assert "heads needed in" in capsys.readouterr().out


def test_heads_of_untrained_sorters_are_written_and_drawn_too(tmp_path, monkeypatch, capsys):
    module, config = example("which_heads_sort"), SortingConfig()
    with isolated(0, "tests", "sorters"):
        models = [Decoder(config.model_config()).eval() for _ in range(3)]
    untrained = SimpleNamespace(
        config=config, seeds=(0, 1, 2), solved_at=(5, None, 5), model=models.__getitem__
    )
    monkeypatch.setattr(module, "train_population", lambda *told, **more: untrained)
    module.main(["--seeds", "3", "--out", str(tmp_path)])
    assert len(written(tmp_path, "heads")) == 2 * 2 * 7
    assert "1 seeds did not learn" in capsys.readouterr().out


@pytest.mark.slow
def test_the_edge_to_the_key_carries_the_answer(tmp_path, capsys):
    rows = example("lookup_edges").main(
        ["--seeds", "6", "--fact-seeds", "2", "--facts", "2", "--out", str(tmp_path)]
    )
    assert len(rows) == len(written(tmp_path, "edges")) == 5 * 5 + 5 * 5
    effects = {(row["task"], row["heads"], row["edge to"]): row["effect"] for row in rows}
    carries = effects["2 new facts", "all", "asked key"]
    assert carries > 10 * abs(effects["2 new facts", "all", "asked value"])
    assert effects["2 new facts", "all", "encoder: key to value"] > 0.5 * carries
    assert "p (Holm)" in capsys.readouterr().out


def test_the_edges_of_one_model_are_cut_one_by_one(tmp_path):
    """As the whole script does, on models that have learned nothing: effects and weights in their
    places."""
    module = example("lookup_edges")
    with isolated(0, "tests", "lookup edges"):
        model = EncoderDecoder(
            EncoderDecoderConfig(
                vocab_size=14, max_length=10, d_model=16, num_heads=2, encoder_positions="none"
            )
        ).eval()
    sources = lookup.all_sources()[::24]
    answers = lookup.right_answer(sources)
    labels = torch.stack((answers, torch.full_like(answers, -100)), 1)
    kinds = torch.arange(5).expand(3, 5)
    effects, weights = module.cut(model, sources, lookup.target_input(answers), labels, kinds)
    assert effects.shape == weights.shape == (3, 5)
    assert torch.allclose(weights.sum(1), torch.ones(3, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(weights[0], weights[1:].mean(0))
    found = module.Found(
        "untrained", module.FIXED, *(torch.stack([each] * 6, -1) for each in (effects, weights))
    )
    assert [row["edge to"] for row in module.table([found])[:5]] == list(module.FIXED)
    module.draw([found], tmp_path / "edges.png")
    assert (tmp_path / "edges.svg").stat().st_size > 5_000
