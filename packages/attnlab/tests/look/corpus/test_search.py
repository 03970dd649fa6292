"""Corpus search: what is found is what reading each text alone would show."""

import csv
import json

import pytest
import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.corpus import MEASURES, Corpus, measures, open_corpus_search, search_corpus, tally
from attnlab.look.corpus import search as searching
from attnlab.look.corpus.text_rows import rows_of
from tests.look.short_texts import TEXTS, WORDS, encode, make_model, measures_of, weights_alone
from tests.planting import fault_tests, faults_in


@pytest.fixture
def encoder():
    return make_model("encoder")


def search(model, measure, texts=TEXTS, **options):
    reading = {"encode": encode, "vocabulary": WORDS, "batch_tokens": 40}
    for name in {"encode", "batch_tokens", "max_length", "limit"} & options.keys():
        reading[name] = options.pop(name)
    return search_corpus(model, Corpus(texts, **reading), measure, **options)


def by_head(found):
    return {row["head"]: row for row in found.table()}


def check_encoder(found, encoder, measure):
    """Hold a search to reading each text alone."""
    values = {head: [] for head in found.heads}
    best = {head: {} for head in found.heads}
    for number, text in enumerate(TEXTS):
        ids = encode(text)
        for head, weights in weights_alone(encoder, text).items():
            rows = enumerate(weights.tolist())
            own = [measures_of(row, ids, query)[measure] for query, row in rows]
            own = [each for each in own if each is not None]
            values[head] += own
            if own:
                best[head][number] = max(own)
    for head, row in by_head(found).items():
        assert row["count"] == len(values[head])
        if not values[head]:
            assert row["mean"] is None
            assert found.examples(head) == []
            continue
        assert row["mean"] == pytest.approx(sum(values[head]) / len(values[head]), abs=1e-5)
        median = float(torch.tensor(values[head]).quantile(0.5))
        assert row["median"] == pytest.approx(median, abs=1e-5)
        shown = found.examples(head)
        largest = sorted(best[head].values(), reverse=True)[:3]
        assert [each.value for each in shown] == pytest.approx(largest, abs=1e-5)
        for each in shown:
            assert best[head][each.text] == pytest.approx(each.value, abs=1e-5)
            assert each.tokens == tuple(TEXTS[each.text].split())


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_says_what_reading_each_text_alone_would(measure):
    encoder = make_model("encoder")
    check_encoder(search(encoder, measure, top=3), encoder, measure)


FAULTS = """
one place off | measures | previous
- rows.keys == rows.queries - 1
+ rows.keys == rows.queries - 2
padding is counted | measures | previous
- self.heads, self.ids, self.real, self._names = heads, ids, real, names
+ self.heads, self.ids, self.real, self._names = heads, ids, torch.ones_like(real), names
the model looks at padding | corpus | previous
- arguments, options = batch_inputs(self._model, batch)
+ arguments, options = (batch.ids,), {}
rows of texts are mixed up | corpus | previous
- Batch(padded, real, list(numbers), lengths)
+ Batch(padded, real, list(numbers)[::-1], lengths)
keys of heads are mixed up | measures | previous
- head // share for head in heads
+ 0 for head in heads
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS, "look.corpus."), test_every_measure_says_what_reading_each_text_alone_would
)


def test_blocks_of_rows_and_batches_change_nothing(encoder, monkeypatch):
    whole = by_head(search(encoder, "induction", top=3))["1.2"]
    monkeypatch.setattr(measures, "_BLOCK", 64)
    check_encoder(search(encoder, "induction", top=3, batch_tokens=17), encoder, "induction")
    found = search(encoder, "induction", top=3, heads=["1.2", "0"])
    assert found.heads == ("0.0", "0.1", "0.2", "1.2")
    for name in ("mean", "low"):
        assert by_head(found)["1.2"][name] == pytest.approx(whole[name], abs=1e-6)


def test_patterns_and_functions_of_ones_own_are_measures_too(encoder):
    with_cats = [text.split() for text in TEXTS if "cat" in text or "dog" in text]
    found = search(encoder, "token:cat|dog")
    assert by_head(found)["0.0"]["count"] == sum(map(len, with_cats))

    def last(rows):
        """Give the weight on the last token that is real."""
        end = (rows.real.sum(-1) - 1)[:, None, None, None].expand(*rows.weights.shape[:3], 1)
        return rows.weights.gather(-1, end).squeeze(-1)

    found = search(encoder, last)
    assert found.measure == "last"
    assert by_head(found)["0.0"]["count"] == sum(len(text.split()) for text in TEXTS)
    for wrong, message in (
        (lambda rows: rows.weights, "a measure returns"),
        (lambda rows: rows.weights.amax(-1).to(torch.complex64), "a measure returns real numbers"),
        ("previus", "previous"),
        ("token:(", "not a valid pattern"),
    ):
        with pytest.raises(WrongUsage, match=message):
            search(encoder, wrong)


def test_the_lowest_are_found_too(encoder):
    low = search(encoder, "entropy", lowest=True, top=4).examples("0.0")
    assert low[0].value == pytest.approx(0.0, abs=1e-6)  # "sat" has only itself to look at
    assert low[0].text == 3
    assert [each.value for each in low] == sorted(each.value for each in low)


def test_the_interval_leaves_a_fortieth_of_the_replicates_out_on_either_side():
    own = tally.Tally(1, 1, 0)
    replicates = torch.arange(own.sums.shape[-1] - 1).double()
    own.sums[:] = 1.0
    own.sums[0, 0, 1:] = replicates
    found, last = own.distribution(), float(replicates[-1])
    assert float(found["low"]) == pytest.approx(0.025 * last)
    assert float(found["high"]) == pytest.approx(0.975 * last)


def test_the_interval_covers_the_mean_of_all_texts_about_as_often_as_it_says():
    covered, trials = 0, 60
    source = torch.Generator().manual_seed(0)
    for trial in range(trials):
        own = tally.Tally(1, 1, trial)
        for number in range(3):
            of_text = torch.randn(16, 1, 1, generator=source)
            of_text = of_text + 0.5 * torch.randn(16, 1, 5, generator=source)
            numbers = range(16 * number, 16 * number + 16)
            own.add(of_text, torch.zeros(16, 1, 5).long(), numbers, [5] * 16)
        found = own.distribution()
        covered += bool(found["low"][0] < 0 < found["high"][0])
    assert 0.88 <= covered / trials <= 0.98


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}


def test_what_was_stopped_ends_in_the_same_bytes(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "_WINDOW", 2)
    search(encoder, "previous", out=tmp_path / "whole")

    def stop(progress):
        if progress.texts == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(encoder, "previous", out=tmp_path / "a", progress=stop)
    partial = open_corpus_search(tmp_path / "a")
    assert not partial.is_done
    assert partial.counts["texts read"] == 4
    assert partial.examples("0.0")
    told = []
    found = search(encoder, "previous", out=tmp_path / "a", progress=told.append)
    assert told[0].texts == 6
    assert found.is_done
    assert files(tmp_path / "a") == files(tmp_path / "whole")
    assert open_corpus_search(tmp_path / "a").table() == found.table()
    with pytest.raises(WrongUsage, match="another search: measure"):
        search(encoder, "first", out=tmp_path / "a")
    with pytest.raises(WrongUsage, match="another search: the corpus"):
        search(encoder, "previous", TEXTS[::-1], out=tmp_path / "a")


def test_of_equal_values_the_first_texts_are_named_in_whatever_order_they_are_read(encoder):
    texts = ["cat dog sat", *["the cat"] * 6]
    for limit in (3, 7):  # read by length, longer ones last
        found = search(encoder, "previous", texts, limit=limit, top=limit)
        values = [(-each.value, each.text) for each in found.examples("0.0")]
        assert values == sorted(values)
    own = tally.Tally(1, 2, 0)
    for number in (5, 3, 4):
        own.add(torch.ones(1, 1, 1), torch.zeros(1, 1, 1).long(), [number], [1])
    assert own.examples()[1][0, :, 0].tolist() == [3, 4]


def test_a_function_that_was_changed_does_not_go_on_under_its_name(encoder, tmp_path):
    def own(rows):
        return rows.weights.amax(-1)

    before = own
    search(encoder, before, out=tmp_path)

    def own(rows):
        return rows.weights.amin(-1)

    with pytest.raises(WrongUsage, match="another search: code"):
        search(encoder, own, out=tmp_path)
    assert search(encoder, before, out=tmp_path).is_done


def test_texts_that_become_other_ids_or_fewer_rows_do_not_go_on(encoder, tmp_path):
    search(encoder, "previous", out=tmp_path)
    with pytest.raises(WrongUsage, match="how its texts become ids"):
        search(encoder, "previous", out=tmp_path, encode=lambda text: encode(text)[::-1])
    with pytest.raises(WrongUsage, match="of which 7 rows were read and 3 are left"):
        search(encoder, "previous", out=tmp_path, limit=3)
    assert search(encoder, "previous", [*TEXTS, "a cat"], out=tmp_path).counts["texts read"] == 8


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (5, "encode is a function"),
        (lambda text: None, "encode returns ids"),
        (lambda text: ["the"], "encode returns ids"),
        (lambda text: [1.5], "encode returns ids"),
        (lambda text: [10], "from 0 to 9"),
        (lambda text: [-1, 2], "from 0 to 9"),
    ],
)
def test_what_makes_no_ids_of_this_model_is_refused(own, words, encoder):
    with pytest.raises(WrongUsage, match=words):
        search(encoder, "previous", encode=own)


def test_what_is_no_corpus_is_refused(encoder):
    for odd in (5, None):
        with pytest.raises(WrongUsage):
            search_corpus(encoder, odd, "previous")
    for odd in ({"limit": 0}, {"batch_tokens": 0}):
        with pytest.raises(WrongUsage):
            Corpus(["the cat"], **odd)


def test_texts_are_read_from_every_kind_of_file(tmp_path):
    rows = [{"text": text, "label": "x"} for text in TEXTS]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["label", "text"])
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "a.tsv").write_text("label\ttext\n" + "".join(f"x\t{text}\n" for text in TEXTS))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    for kind in ("csv", "tsv", "jsonl", "txt"):
        assert [row.text for row in rows_of(tmp_path / f"a.{kind}")] == TEXTS, kind
    for kind in ("csv", "tsv"):
        with pytest.raises(WrongUsage, match="no column 'txet'"):
            list(rows_of(tmp_path / f"a.{kind}", "txet"))
    assert {row.text for row in rows_of(tmp_path / "a.jsonl", "txet")} == {None}
    with pytest.raises(WrongUsage, match="a corpus is a file"):
        rows_of(tmp_path / "a.pdf")
    with pytest.raises(CouldNotRun, match="there is no file"):
        rows_of(tmp_path / "b.csv")


def test_bad_rows_are_counted_and_a_corpus_without_any_text_is_refused(encoder, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(
        b'{"text": "the cat"}\n{"text": ""}\n{"text": 3}\n{"label": 1}\nnot json\n[]\n'
        b'{"text": "\xff"}\n"a dog"\n'
    )
    found = search(encoder, "previous", file)
    assert found.counts["texts read"] == 2
    assert found.counts["rows left out"] == 6
    reasons = "empty; an int, no text; no 'text'; not JSON; neither an object nor a text; not UTF-8"
    assert {f"left out: {why}" for why in reasons.split("; ")} <= found.counts.keys()
    (tmp_path / "b.csv").write_text("text,label\nthe cat\na dog,1\n")
    assert search(encoder, "own", tmp_path / "b.csv").counts["rows left out"] == 1
    for empty, why in (([], "no row at all"), (["", "  "], "2 left out: empty")):
        with pytest.raises(WrongUsage, match=f"no text could be read: .*{why}"):
            search(encoder, "previous", empty)


def test_long_texts_are_cut_and_counted_and_a_corpus_is_read_no_further_than_asked(encoder):
    found = search(encoder, "previous", max_length=4, limit=5)
    assert found.counts["texts read"] == 5
    assert found.counts["texts of the longest length, perhaps cut"] == 3
    assert found.counts["tokens read"] == 4 + 4 + 3 + 1 + 4

    def endless():
        while True:
            yield "the cat"

    assert search(encoder, "previous", endless(), limit=3).counts["texts read"] == 3


def test_what_is_kept_does_not_grow_with_the_corpus(encoder, tmp_path):
    sizes = []
    for times in (50, 100):
        out = tmp_path / str(times)
        search(encoder, "previous", TEXTS * times, out=out, top=2, batch_tokens=4096)
        sizes.append(sum(path.stat().st_size for path in out.iterdir()))
    assert sizes[1] < 1.02 * sizes[0] + 200


def test_a_folder_that_holds_something_else_or_is_damaged_is_refused(encoder, tmp_path):
    with pytest.raises(CouldNotRun, match="there is no search"):
        open_corpus_search(tmp_path)
    search(encoder, "previous", out=tmp_path)
    told = json.loads((tmp_path / "search.json").read_text())
    damages = {"heads": None, "numbers": "none.safetensors", "sha256": "0", "counts": 3}
    for damage in ({"format": "other"}, *({name: each} for name, each in damages.items())):
        (tmp_path / "search.json").write_text(json.dumps({**told, **damage}))
        with pytest.raises(CouldNotRun, match=r"no search|damaged|could not read .*none\."):
            open_corpus_search(tmp_path)
