"""The census: what is counted is what reading each text alone shows; shards add up to the whole."""

import math
import random

import pytest
import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.census import count, count_heads, merge_censuses, open_census
from attnlab.look.census.bins import SHARE, Bins, bins_of, distance_bins, distance_words
from attnlab.look.census.meter import COUNTED, BatchMeasures
from attnlab.look.census.result import NO_KIND
from attnlab.look.census.sketch import Sketch
from attnlab.look.corpus import Corpus
from attnlab.look.corpus.corpus import CorpusBatch
from tests.look.short_texts import TEXTS as SHORT_TEXTS
from tests.look.short_texts import WORDS, encode, make_model, measures_of, weights_alone
from tests.planting import fault_tests, faults_in

TEXTS = [*SHORT_TEXTS[:3], "", *SHORT_TEXTS[3:]]


@pytest.fixture
def model():
    return make_model("decoder")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(count, "BLOCK", 3)


def corpus(texts=TEXTS, **options):
    return Corpus(texts, **{"encode": encode, "vocabulary": WORDS, "batch_tokens": 40} | options)


def by_hand(weights, ids):
    """Measure one head on one text, in words that can be followed: by measure a list of values,
    the strongest weight beside the first token with its query and key, the weight by key, and by
    distance."""
    values = {name: [] for name in COUNTED}
    strongest, by_distance = [], {}
    for query, row in enumerate(weights.tolist()):
        keys, found = range(len(ids)), measures_of(row, ids, query)
        for name in COUNTED:
            values[name] += [] if found[name] is None else [found[name]]
        others = [(row[key], query, key) for key in keys if key and row[key] > 0]
        strongest.append(max(others, default=None))
        for key in keys:
            words = away_in_words(query - key)
            by_distance[words] = by_distance.get(words, 0.0) + row[key]
    return values, strongest, weights.double().sum(0).tolist(), by_distance


def away_in_words(distance):
    """Name a distance of less than 32 tokens."""
    if distance == 0:
        return "itself"
    first = 2 ** int(math.log2(abs(distance)))
    words = f"{first}" if first == 1 else f"{first} to {2 * first - 1}"
    return f"{words} {'back' if distance > 0 else 'ahead'}"


def read_alone(model):
    """Measure every head on every text, each read alone: by head, by text."""
    heads = {}
    for number, text in enumerate(TEXTS):
        ids = encode(text)
        for head, weights in weights_alone(model, text).items() if ids else ():
            heads.setdefault(head, {})[number] = ids, by_hand(weights, ids)
    return heads


def check(census, model):
    """Hold a census to reading each text alone."""
    alone, rows = read_alone(model), {row["head"]: row for row in census.table()}
    assert set(rows) == set(alone)
    for head, texts in alone.items():
        for measure in COUNTED:
            values = [each for _, (by, *_) in texts.values() for each in by[measure]]
            mean = sum(values) / len(values) if values else None
            assert rows[head][measure] == pytest.approx(mean, abs=1e-6), (head, measure)
        variance = rows[head]["distance_variance"]
        assert variance == pytest.approx(distance_variance(texts), abs=1e-6), head
        check_examples(census, head, texts)
        check_distances(census, head, texts)
        for role in ("key", "query"):
            check_tokens(census, head, texts, role)


def check_examples(census, head, texts):
    best = {}
    for number, (_, (_, strongest, *_)) in texts.items():
        if any(strongest):
            best[number] = max(filter(None, strongest))
    largest = sorted((value for value, *_ in best.values()), reverse=True)
    shown = census.examples(head)
    assert [each.value for each in shown] == pytest.approx(largest, abs=1e-6)
    for each in shown:
        assert best[each.text][1:] == (each.query, each.key)
        assert each.tokens == tuple(TEXTS[each.text].split())
    drawn = [each.text for tenth in census.deciles(head) for each in tenth]
    assert sorted(drawn) == sorted(best)


def distance_variance(texts):
    """The variance over all weights: that within the rows, and that of their means."""
    rows = []
    for _, (by, *_) in texts.values():
        rows += zip(by["distance"], by["spread"], strict=True)
    mean = sum(distance for distance, _ in rows) / len(rows)
    return sum(spread**2 + (distance - mean) ** 2 for distance, spread in rows) / len(rows)


def check_distances(census, head, texts):
    mass = {}
    for _, (_, _, _, by_distance) in texts.values():
        for way, weight in by_distance.items():
            mass[way] = mass.get(way, 0.0) + weight
    total = sum(mass.values())
    expected = {way: weight / total for way, weight in mass.items() if weight > 1e-12}
    assert dict(census.distances(head)) == pytest.approx(expected, abs=1e-6)


def check_tokens(census, head, texts, role):
    totals, occurrences = {}, {}
    for ids, (_, strongest, received, _) in texts.values():
        for place, token in enumerate(ids):
            value = received[place]
            if role == "query":
                value = strongest[place][0] if strongest[place] else 0.0
            totals[WORDS[token]] = totals.get(WORDS[token], 0.0) + value
            occurrences[WORDS[token]] = occurrences.get(WORDS[token], 0) + 1
    table = {row["token"]: row for row in census.tokens(head, role)}
    found = {token: row["total"] for token, row in table.items()}
    assert found == pytest.approx(totals, abs=1e-6)
    assert {token: row["occurrences"] for token, row in table.items()} == occurrences


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_census_says_what_reading_each_text_alone_would(kind):
    model = make_model(kind)
    census = count_heads(model, corpus())
    check(census, model)
    assert census.counts["texts read"] + census.counts["rows left out"] == len(TEXTS)
    assert census.missing == []


FAULTS = """
padding is read | corpus.measures | encoder
- self.heads, self.ids, self.real, self._names = heads, ids, real, names
+ self.heads, self.ids, self.real, self._names = heads, ids, torch.ones_like(real), names
padded queries count | census.meter | encoder
- weights = rows.weights.masked_fill(is_padding.unsqueeze(-1), 0.0)
+ weights = rows.weights
the first token counts as strongest | census.meter | decoder
- left_out = at_start[:, None, None] | ~rows.allowed
+ left_out = ~rows.allowed
distances the wrong way | census.bins | decoder
- return away.sign() * size + _FARTHEST
+ return _FARTHEST - away.sign() * size
the variance of the rows alone | census.result | decoder
- return _number(square - mean.square())
+ return _number(square - mean)
the square of another distance | census.meter | decoder
- torch.stack((away, away.square()), -1)
+ torch.stack((away, away.abs()), -1)
the spread about zero | corpus.measures | decoder
- from_mean = _away(rows) - _mean_distance(rows).unsqueeze(-1)
+ from_mean = _away(rows)
tokens of another order | census.sketch | decoder
- wider[..., torch.searchsorted(among, ids)] = sums
+ wider[..., : len(ids)] = sums
texts of another batch | census.sketch | decoder
- columns = (best.values, keys.expand_as(key), numbers.expand_as(key), best.indices, key)
+ columns = (best.values, keys.expand_as(key), numbers.flip(0).expand_as(key), best.indices, key)
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS, "look."), test_a_census_says_what_reading_each_text_alone_would
)


def numbers_of(census):
    return vars(census._sketch)


def assert_equal(one, other, places=1e-12):
    assert one.table() == pytest.approx(other.table(), rel=places)
    for name, tensor in numbers_of(one).items():
        if tensor.is_floating_point():
            assert torch.allclose(tensor, numbers_of(other)[name], rtol=places, atol=1e-12), name
        else:
            assert torch.equal(tensor, numbers_of(other)[name]), name


@pytest.mark.parametrize("shares", [2, 7])
def test_shards_add_up_to_the_whole_in_any_order(model, tmp_path, shares):
    whole = count_heads(model, corpus())
    folders = [tmp_path / f"share-{share}" for share in range(1, shares + 1)]
    random.Random(0).shuffle(folders)
    for folder in folders:  # three blocks are fewer than seven shares
        share = int(folder.name.removeprefix("share-"))
        count_heads(model, corpus(), shard=(share, shares), out=folder)
    merged = merge_censuses(folders, out=tmp_path / "all")
    assert merged.missing == []
    assert_equal(merged, whole)
    assert_equal(open_census(tmp_path / "all"), whole)


def test_a_share_that_is_missing_or_comes_twice_is_said(model, tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    count_heads(model, corpus(), shard=(1, 2), out=first)
    count_heads(model, corpus(), shard=(2, 2), out=second)
    assert merge_censuses([first]).missing == [1]
    with pytest.raises(WrongUsage, match="each block counts once"):
        merge_censuses([first, second, first])
    other = tmp_path / "other"
    count_heads(model, corpus(), shard=(2, 2), out=other, seed=1)
    with pytest.raises(WrongUsage, match="seed differs"):
        merge_censuses([first, other])
    with pytest.raises(WrongUsage, match="holds a census already"):
        merge_censuses([first, second], out=first)
    with pytest.raises(WrongUsage, match="got none"):
        merge_censuses([])


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_a_census_that_is_stopped_at_any_block_ends_in_the_same_bytes(model, tmp_path):
    whole = tmp_path / "whole"
    count_heads(model, corpus(), out=whole)
    stopped = tmp_path / "stopped"
    for texts in (1, 4, 5, 7):

        def broken(texts=texts):
            yield from TEXTS[:texts]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            count_heads(model, corpus(broken()), out=stopped)
    count_heads(model, corpus(), out=stopped)
    assert bytes_of(stopped) == bytes_of(whole)
    count_heads(model, corpus(), out=stopped)  # once more changes nothing
    assert bytes_of(stopped) == bytes_of(whole)


def test_another_corpus_or_setting_is_refused_and_nothing_is_lost(model, tmp_path):
    count_heads(model, corpus(), out=tmp_path)
    before = bytes_of(tmp_path)
    with pytest.raises(WrongUsage, match="rows 3 to 5 differ"):
        count_heads(model, corpus([*TEXTS[:3], "dog", *TEXTS[4:]]), out=tmp_path)
    with pytest.raises(WrongUsage, match="heads differs"):
        count_heads(model, corpus(), out=tmp_path, heads=["0"])
    with pytest.raises(WrongUsage, match="a shard is"):
        count_heads(model, corpus(), shard=(3, 2))
    with pytest.raises(WrongUsage, match="no text could be read"):
        count_heads(model, corpus(["", " "]))
    assert bytes_of(tmp_path) == before
    numbers = next(tmp_path.glob("numbers-*"))
    numbers.write_bytes(numbers.read_bytes()[:-1] + b"x")
    with pytest.raises(CouldNotRun, match="damaged"):
        open_census(tmp_path)


def test_heads_may_be_chosen_and_unknown_ones_are_refused(model):
    census = count_heads(model, corpus(), heads=["1.2", "0"])
    assert census.heads == ("0.0", "0.1", "0.2", "1.2")
    whole = {row["head"]: row for row in count_heads(model, corpus()).table()}
    for row in census.table():
        assert row == pytest.approx(whole[row["head"]], abs=1e-6)
    with pytest.raises(WrongUsage, match="was not counted"):
        census.examples("1.0")
    with pytest.raises(WrongUsage, match="entropy"):
        census.quantiles("entropi")


def test_heads_are_counted_by_their_kind(model):
    census = count_heads(model, corpus())
    kinds = [row["kind"] or NO_KIND for row in census.table()]
    assert census.kinds() == {kind: kinds.count(kind) for kind in kinds}
    assert sum(census.kinds().values()) == len(census.heads)
    resting = "rests on the first token"
    place = COUNTED.index("first")
    census._sketch.sums[place, :4] = census._sketch.counts[place, :4]  # all weight of four heads
    assert census.kinds() == {resting: 4, NO_KIND: 2}
    assert census.kinds_text().startswith(f"4 × {resting} · 2 × {NO_KIND} (a kind: 0.5 or more")


def test_the_interval_holds_the_mean_of_many_texts_about_as_often_as_it_says():
    """Of the values of 30 texts drawn from a known distribution."""
    source, covered, trials = torch.Generator().manual_seed(0), 0, 60
    for trial in range(trials):
        values = torch.rand(len(COUNTED), 30, 1, 4, generator=source)
        none = torch.zeros(30, 1, 4)
        ends = torch.zeros(1, 29), torch.zeros(1, 2)
        measured = BatchMeasures(values, none / 0, none.long(), none, *ends)
        ids = torch.zeros(30, 4, dtype=torch.int64)
        batch = CorpusBatch(ids, torch.ones_like(ids, dtype=torch.bool), list(range(30)), [4] * 30)
        sketch = Sketch.of(measured, batch, trial)
        means = (sketch.sums / sketch.counts)[0, 0]
        low, high = means[1:].quantile(torch.tensor([0.025, 0.975]).double())
        covered += bool(low <= 0.5 <= high)
    assert 0.9 <= covered / trials <= 0.99


def test_quantiles_come_from_a_histogram_and_are_as_exact_as_its_bins():
    source = torch.Generator().manual_seed(0)
    values = torch.rand(1, 5000, generator=source, dtype=torch.float64)
    counts = torch.bincount(SHARE.of(values[0]), minlength=SHARE.number)[None]
    shares = torch.tensor([0.0, 0.05, 0.5, 0.95, 1.0]).double()
    found = SHARE.quantiles(counts, shares)
    assert torch.allclose(found[0], values[0].quantile(shares), atol=1 / SHARE.number)
    assert bool(SHARE.quantiles(torch.zeros(1, SHARE.number), shares).isnan().all())
    assert {bins_of(measure).number <= SHARE.number for measure in COUNTED} == {True}
    ends, inside = torch.tensor([0.0, 1.0]), torch.tensor([-1.0, 0.0, 0.5, 1.0])
    assert Bins(ends).of(inside).tolist() == [0, 1, 1, 2]


def test_distances_are_counted_by_doubling_and_named():
    expected = {0: "itself", 1: "1 back", -1: "1 ahead", 3: "2 to 3 back", -7: "4 to 7 ahead"}
    expected |= {8191: "4,096 to 8,191 back", 9000: "8,192 or more back"}
    words = distance_words()
    bins = distance_bins(torch.tensor(list(expected)))
    assert [words[each] for each in bins.tolist()] == list(expected.values())
    assert distance_bins(torch.arange(-9000, 9001)).diff().min() >= 0
