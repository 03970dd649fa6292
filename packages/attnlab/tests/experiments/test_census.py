"""The census with effects: a head that matters is found and one that does nothing is not."""

import pytest
import torch
from ray_cluster import Cluster

from attnlab.core.row_files import write_rows
from attnlab.edits.effects.census_effects import head_effects
from attnlab.edits.effects.significance import assess
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.census import add_effects, census, census_in_shares, estimate_census
from attnlab.experiments.executors import ExecutorOptions
from attnlab.experiments.model_loader import load_pretrained
from attnlab.look.census import count, count_heads, open_census
from attnlab.look.corpus import Corpus
from tests.pretrained.speaking import saved
from tests.random_models import new_model
from tests.sampling import sampled

pytest.importorskip("transformers")

TEXTS = [
    "the cat sat on the mat and the dog sat on the cat",
    "John and Mary went to the store.",
    "a warm funny film with a heart",
    "Mary gave a drink to John.",
    "the dog sat on the mat",
    "a film with a cat and a dog",
    "John sat on the store",
    "the heart of the film",
    "unbelievable",
]
CONTENT = {"gpt2": "loss", "llama": "loss", "bert-masked": "loss", "bert": "cosine"}
CONTENT |= {"bert-judge": "kl", "t5": "kl"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("models")
    return {kind: saved(kind, parent / kind) for kind in CONTENT}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return Corpus(path)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(count, "BLOCK", 2)


@pytest.mark.parametrize("kind", CONTENT)
def test_every_kind_of_model_has_a_census_with_effects(kind, folders, corpus, tmp_path):
    model = load_pretrained(folders[kind])
    result = census(model, corpus, effects=8, out=tmp_path)
    rows = result.table()
    assert len(rows) == len(result.heads) == 8
    assert {row["metric"] for row in result.effects} == {CONTENT[kind]}
    for row in rows:
        assert row["zeroed_low"] <= row["zeroed"] <= row["zeroed_high"]
        assert (row["zeroed_matters"] is None) == (CONTENT[kind] != "loss")
        assert 0.0 <= row["induction_on_repeats"] <= 1.0
    assert open_census(tmp_path).table() == rows


def test_memory_is_given_back_before_the_passes_of_the_effects(folders, corpus, monkeypatch):
    calls = []
    heads = "attnlab.experiments.census.head_effects"
    monkeypatch.setattr(heads, lambda *a, **k: calls.append("effects") or head_effects(*a, **k))
    memory = "attnlab.experiments.census.give_back_large_blocks"
    monkeypatch.setattr(memory, lambda: calls.append("memory"))
    census(load_pretrained(folders["gpt2"]), corpus, effects=2)
    assert calls == ["memory", "effects"]


def test_an_effect_is_what_an_edit_by_hand_does(folders, corpus):
    from attnlab import edit, edits

    model = load_pretrained(folders["gpt2"])
    ids = [list(model.tokenizer(text)["input_ids"]) for text in TEXTS[:4]]
    rows, _ = head_effects(model, ids, ["layers.1.attention"], controls=["zeroed"])
    assert [row["head"] for row in rows] == ["1.0", "1.1", "1.2", "1.3"]

    def loss(text):
        tokens = torch.tensor([text])
        with torch.no_grad():
            logits = model(tokens)[0, :-1]
        return float(torch.nn.functional.cross_entropy(logits, tokens[0, 1:]))

    changes = []
    for text in ids:
        before = loss(text)
        with edit(model, edits.ZeroHead(layer=1, head=2)):
            changes.append(loss(text) - before)
    assert rows[2]["effect"] == pytest.approx(sum(changes) / len(changes), abs=1e-6)


def by_head(model, texts):
    rows, caution = head_effects(model, texts, ["layers.0.attention"], controls=["zeroed"])
    assert caution == ""
    return {row["head"]: row for row in rows}


def test_a_head_that_writes_nothing_does_not_matter_and_one_that_writes_much_does():
    model = new_model("decoder", vocab_size=20, d_model=16, num_heads=4, num_layers=1)
    draw = torch.Generator().manual_seed(0)
    texts = torch.randint(0, 20, (32, 12), generator=draw).tolist()
    output = model.layers[0].attention.output.weight
    with torch.no_grad():
        output[:, 4:8] = 0.0  # of head 1
    rows = by_head(model, texts)
    assert rows["0.1"]["effect"] == 0.0
    assert not rows["0.1"]["matters"]
    with torch.no_grad():
        output[:, 4:8] = 40.0 * torch.randn(16, 4, generator=draw)
    rows = by_head(model, texts)
    assert rows["0.1"]["matters"]


@pytest.mark.parametrize("draws", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_of_heads_without_any_effect_few_are_said_to_matter(draws):
    """Every finding is false then, so their expected share is how often there is any."""
    false = 0
    for seed in range(draws):
        draw = torch.Generator().manual_seed(seed)
        size = torch.randn(144, 32, generator=draw).exp()  # some texts change a lot
        signs = torch.randint(0, 2, (144, 32), generator=draw) * 2.0 - 1.0
        tested = assess(size * signs, correction="bh", draws=2_000, seed=seed)
        false += bool((tested.p_corrected <= 0.05).any())
    assert false / draws <= 0.05


def test_what_few_texts_cannot_show_is_said_and_a_distance_is_never_negative(folders, corpus):
    result = census(load_pretrained(folders["gpt2"]), corpus, effects=3)
    assert "3 texts cannot show that a single head matters among 16 tests; it takes 10." in (
        result.caution
    )
    result = census(load_pretrained(folders["bert"]), corpus, effects=3)
    assert "rough" in result.caution
    assert all(0.0 <= row["low"] <= row["effect"] <= row["high"] for row in result.effects)


def test_effects_need_texts_and_a_share_has_none(folders, corpus):
    model = load_pretrained(folders["gpt2"])
    assert census(model, corpus, shard=(1, 2)).effects == []
    assert census(model, corpus, effects=0).repeats == {}
    with pytest.raises(WrongUsage, match="from 2 to 64"):
        census(model, corpus, effects=65)
    with pytest.raises(WrongUsage, match="two different texts"):
        census(model, ["the cat sat", "the cat sat"])


ENGINES = [ExecutorOptions(), ExecutorOptions("slurm", address="here"), ExecutorOptions("local", 2)]


@pytest.mark.parametrize("where", sampled(ENGINES, 2))  # workers: test_sweeps
def test_shares_on_any_engine_give_the_same_table(where, folders, corpus, tmp_path, monkeypatch):
    if where.kind == "slurm":
        pytest.importorskip("submitit", reason="jobs need it; pip install 'attnlab[slurm]'")
    monkeypatch.undo()  # workers have the usual blocks
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    whole = count_heads(load_pretrained(folders["gpt2"]), corpus)
    merged = census_in_shares(folders["gpt2"], corpus, 2, where, out=tmp_path / "out", effects=2)
    assert [row["previous"] for row in merged.table()] == pytest.approx(
        [row["previous"] for row in whole.table()], rel=1e-12
    )
    again = census_in_shares(folders["gpt2"], corpus, 2, where, out=tmp_path / "out", effects=2)
    assert again.table() == merged.table()


@pytest.mark.slow
def test_a_ray_cluster_of_three_nodes_gives_the_table_of_one_pass(folders, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="a cluster needs it; pip install 'attnlab[ray]'")
    monkeypatch.undo()
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"{text} {number}" for number in range(200) for text in TEXTS))
    many = Corpus(path)
    whole = census(load_pretrained(folders["gpt2"]), many, effects=4)
    with Cluster(3) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        where = ExecutorOptions("ray", address=cluster.address)
        merged = census_in_shares(folders["gpt2"], many, 6, where, out=tmp_path / "out", effects=4)
    for one, other in zip(merged.table(), whole.table(), strict=True):
        for name, value in other.items():
            assert one[name] == (
                value if isinstance(value, str) else pytest.approx(value, rel=1e-12)
            )


def test_jobs_need_submitit_and_a_cluster(monkeypatch):
    from attnlab.experiments.executors import make_engine

    with pytest.raises(WrongUsage, match="leave --workers out"):
        make_engine(ExecutorOptions("slurm", 2))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CouldNotRun, match=r"pip install 'attnlab\[slurm\]'"):
        make_engine(ExecutorOptions("slurm"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(CouldNotRun, match="sbatch"):
        make_engine(ExecutorOptions("slurm"))


def test_rows_are_parquet_or_csv(tmp_path, monkeypatch):
    rows = [{"head": "0.0", "value": 0.5}, {"head": "0.1", "value": None}]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(write_rows(tmp_path / "heads", rows)).to_pylist() == rows
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert write_rows(tmp_path / "heads", rows).read_text() == "head,value\n0.0,0.5\n0.1,\n"


def test_an_estimate_counts_a_thousand_tokens_and_times_one_attention(
    folders, tmp_path, monkeypatch
):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"{text} {number}" for number in range(150) for text in TEXTS))
    model, clock = load_pretrained(folders["gpt2"]), iter([0.0, 2.0, 10.0, 13.0])
    monkeypatch.setattr("attnlab.experiments.census.time.perf_counter", lambda: next(clock))
    rate = estimate_census(model, Corpus(path), effects=8)
    assert 1000 <= rate.tokens < 1100
    assert rate.per_second == rate.tokens / 2.0
    assert rate.effects == 3.0 * 2 * 8 / 2  # two attentions, four pairs of texts


def test_effects_may_be_added_later(folders, corpus, tmp_path):
    model = load_pretrained(folders["gpt2"])
    result = count_heads(model, corpus, out=tmp_path)
    add_effects(model, result, texts=4, out=tmp_path)
    assert open_census(tmp_path).effects == result.effects
