"""Folders of HeadVis: what is written is what reading the texts alone gives, and it is read again.

The metrics are held to HeadVis' own formulas, written out here in loops.
"""

import json
import math
from collections import defaultdict
from functools import partial

import pytest

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.census import HeadVis, count_heads, open_headvis, write_headvis
from tests.look.census.test_census import TEXTS, corpus
from tests.look.short_texts import encode, make_model, weights_alone
from tests.planting import fault_tests, faults_in, run_test
from tests.random_models import new_model

LENGTH = max(len(text.split()) for text in TEXTS)


def scores_by_formula(all_weights):
    """The metrics of HeadVis, summed over all texts of at least one token."""
    sums, counts = defaultdict(float), defaultdict(int)
    for text, heads in all_weights.items():
        ids = encode(text)
        for head, weights in heads.items():
            for query, row in enumerate(weights.tolist()):
                again = [key for key in range(1, query + 1) if ids[key - 1] == ids[query]]
                parts = {
                    "self_attention_score": row[query],
                    "pattern_entropy": -sum(w * math.log(w) for w in row if w > 0),
                    "qk_distance": sum(w * abs(query - key) for key, w in enumerate(row)),
                    "square": sum(w * abs(query - key) ** 2 for key, w in enumerate(row)),
                }
                if query:
                    parts["prev_token_score"] = row[query - 1]
                if again:
                    parts["induction_score"] = sum(row[key] for key in again)
                for name, value in parts.items():
                    sums[head, name] += value
                    counts[head, name] += 1
    scores = {key: value / counts[key] for key, value in sums.items()}
    for head in {head for head, _ in scores}:
        variance = scores.pop((head, "square")) - scores[head, "qk_distance"] ** 2
        scores[head, "qk_distance_variance"] = variance
    return scores


def check_weights(found, expected):
    """The kept weights are the eight largest of each row, of 0.005 or more; the others unknown."""
    for row, kept in zip(expected.tolist(), found.tolist(), strict=True):
        largest = sorted(row, reverse=True)[:8]
        for weight, found in zip(row, kept, strict=True):
            if math.isnan(found):
                assert weight < max(0.00501, min(largest) + 1e-6)
            else:
                assert found == pytest.approx(weight, abs=6e-5)
                assert weight >= 0.00499


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_census_is_written_as_headvis_defines_it_and_read_again(kind, tmp_path):
    """Every number of the folder is held to the texts."""
    model, folder = make_model(kind), tmp_path / "tree"
    census = count_heads(model, corpus())
    write_headvis(census, model, folder)
    tree = attnlab.open(folder)
    assert isinstance(tree, HeadVis)
    assert tree.heads == census.heads
    for name in ("qk_distance", "qk_distance_variance"):
        assert (name in tree.metrics) != (kind == "encoder")
    weights = {text: weights_alone(model, text) for text in filter(None, TEXTS)}
    expected = scores_by_formula(weights)
    for row in tree.table():
        for name in tree.metrics:
            if (row["head"], name) in expected:
                wanted = expected[row["head"], name]
                assert row[name] == pytest.approx(wanted, abs=6e-5), (row["head"], name)
    for head in tree.heads:
        examples = tree.examples(head)
        kept = sorted((example.value for example in examples), reverse=True)
        strongest = [example.value for example in census.examples(head)]
        assert kept[: len(strongest)] == pytest.approx(strongest, abs=6e-5)
        for example in examples:
            check_weights(example.weights, weights[" ".join(example.tokens)][head])
        tokens = [(row["token"], row["total"]) for row in census.tokens(head, "key", 50)]
        assert tree.tokens(head) == [(token, pytest.approx(w, abs=6e-5)) for token, w in tokens]


FAULTS = """
queries and keys change places | census.headvis | decoder
- flat = torch.arange(length).unsqueeze(-1) * length + hook.keys[row, :, :length]
+ flat = torch.arange(length).unsqueeze(-1) + hook.keys[row, :, :length] * length
the weights of another head | census.headvis | decoder
- values = hook.values[row, place, :length]
+ values = hook.values[row, place - 1, :length]
a distance of a head that looks ahead | census.headvis | encoder
- return [name for name in metrics if not name.startswith("qk_distance")]
+ return [name for name in metrics if name != "qk_distance"]
the smallest weights are kept | census.headvis | decoder
- keys = rows.weights.topk(self.keys.shape[-1]).indices.sort().values
+ keys = rows.weights.topk(self.keys.shape[-1], largest=False).indices.sort().values
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS, "look."),
    lambda kind: run_test(
        partial(test_a_census_is_written_as_headvis_defines_it_and_read_again, kind)
    ),
)


def test_neuronpedias_loaders_find_what_they_ask_for(tmp_path):
    model = new_model(vocab_size=10, max_length=LENGTH)
    write_headvis(count_heads(model, corpus()), model, tmp_path / "tree")
    config = json.loads((tmp_path / "tree" / "config.json").read_text())
    asked = {"model_name", "dataset_name", "n_sequences", "seq_len", "dtype", "attn_implementation"}
    assert asked <= set(config["pipeline_config"])
    rows = json.loads((tmp_path / "tree" / "scatter_data.json").read_text())
    assert [[row["layer"], row["head"]] for row in rows] == config["heads"]
    for layer, head in config["heads"]:
        content = json.loads((tmp_path / "tree" / "heads" / f"L{layer}H{head}.json").read_text())
        for sequence in content["sequences"]:
            size = len(sequence["tokens"])
            assert sequence["seq_len"] == size
            assert 1 <= sequence["interval"] <= config["n_intervals"]
            places, weights = sequence["attention_indices"], sequence["attention_values"]
            assert len(places) == len(weights)
            assert max(places) < size * size
        for name in ("qk_distance_histogram", "histogram"):
            histogram = content[name]
            assert len(histogram["bin_edges"]) == len(histogram["bin_values"]) + 1
            assert histogram["bin_edges"] == sorted(histogram["bin_edges"])


def test_a_folder_by_others_is_read_with_the_metrics_that_it_names(tmp_path):
    config = {"model_name": "gemma", "dataset_name": "pile", "metrics": ["prev_token_score"]}
    kept = {"interval": 5, "tokens": ["a", "b"], "attention_indices": [2], "max_activation": None}
    (tmp_path / "heads").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(config))
    rows = [{"layer": 3, "head": 1, "prev_token_score": None, "qk_distance": 2.0}]
    (tmp_path / "scatter_data.json").write_text(json.dumps(rows))
    content = {"sequences": [kept | {"attention_values": [0.75]}]}
    (tmp_path / "heads" / "L3H1.json").write_text(json.dumps(content))
    tree = open_headvis(tmp_path)
    assert tree.table() == [{"head": "3.1", "prev_token_score": None}]
    example = tree.examples("3.1")[0]
    assert example.weights[1, 0] == 0.75
    assert example.weights.isnan().sum() == 3
    assert tree.tokens("3.1", "query") == []
    with pytest.raises(WrongUsage, match=r"'3\.2' is not in this folder"):
        tree.examples("3.2")
    content = {"sequences": [kept | {"attention_values": [0.75], "attention_indices": [4]}]}
    (tmp_path / "heads" / "L3H1.json").write_text(json.dumps(content))
    with pytest.raises(CouldNotRun, match="damaged"):
        tree.examples("3.1")


def test_a_census_of_another_model_is_refused(tmp_path):
    sizes = {"vocab_size": 10, "max_length": LENGTH}
    counted, other = (new_model("decoder", seed, **sizes) for seed in (0, 1))
    with pytest.raises(WrongUsage, match="not the model of the census"):
        write_headvis(count_heads(counted, corpus()), other, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
