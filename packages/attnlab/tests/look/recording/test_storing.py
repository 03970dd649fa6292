"""Recordings on disk: what is read back is what was written, and what is damaged is found out."""

import itertools
import json
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from attnlab.core.store import StateFolder, write_json
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import Recording, open_recording, record
from attnlab.models import generate
from attnlab.sites import installed
from tests.hooks import Change
from tests.random_models import any_case, new_model, run
from tests.sampling import sampled

SOURCE = torch.tensor([[1, 2, 3, 0], [2, 0, 0, 0]])
REAL = torch.tensor([[True, True, True, False], [True, False, False, False]])
CROSS = "decoder.layers.0.cross_attention.weights"


@pytest.fixture(scope="module")
def recording():
    """A cached generation of an encoder–decoder under an edit, everything kept."""
    sizes = {"vocab_size": 5, "d_model": 8, "num_heads": 4, "num_kv_heads": 2}
    model = new_model("encoder-decoder", **sizes)
    edit = Change("decoder.layers.0.attention.weights", lambda weights: weights.flip(1), "flip")
    with installed(model, edit), record(model, "*", vocabulary="pabcs") as recording:
        generate(model.conditioned(SOURCE, real=REAL), torch.tensor([[4], [4]]), 7)
    return recording


@pytest.fixture
def folder(recording, tmp_path):
    return recording.save(tmp_path / "saved")


def same(one, other):
    return one.dtype == other.dtype and torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


def test_everything_comes_back(recording, folder):
    again = open_recording(folder)
    assert isinstance(again, Recording)
    assert list(again) == list(recording)
    for site in recording:
        pairs = list(zip(again.all(site), recording.all(site), strict=True))
        assert all(same(*pair) for pair in pairs), site
        assert again.shape(site) == recording.shape(site)
        assert again.tokens(site, 1) == recording.tokens(site, 1)
        assert again.real(site, 1) == recording.real(site, 1)
        assert same(again.joined(site), recording.joined(site)), site
    assert torch.equal(again.blocked(CROSS, 1), recording.blocked(CROSS, 1))
    one, other = (each.tile(CROSS, head=3, keys=slice(0, 2)) for each in (again, recording))
    assert torch.equal(one, other)
    edit = {"kind": "flip", "site": "decoder.layers.0.attention.weights"}
    assert again.edits == recording.edits == [edit]
    assert again.model == recording.model
    assert again.joined().compare(recording.joined()).largest == 0.0


@pytest.mark.parametrize("seed", sampled(range(25), 2))
def test_recordings_of_all_kinds_and_dtypes_come_back(seed, tmp_path):
    each = any_case(seed)
    with record(each.model, "*") as recording:
        run(each)
    again = Recording.load(recording.save(tmp_path))
    assert all(same(again[site], recording[site]) for site in recording)


def test_what_is_saved_is_small_where_weights_were_made_on_demand(tmp_path):
    model = decoder(max_length=512, num_layers=1)
    with torch.no_grad(), record(model, ["*weights", "*scores", "*query"]) as recording:
        model(torch.zeros(1, 512, dtype=torch.int64))
    recording.save(tmp_path)
    assert (tmp_path / "recording.safetensors").stat().st_size < 2 * 512 * 8 * 4 + 512 * 8 + 1000
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["recording.json", "recording.safetensors"]


def test_gradients_come_back(tmp_path):
    model = decoder()
    with record(model, "layers.0.attention.weights", gradients=True) as recording:
        model(SOURCE).sum().backward()
    again = Recording.load(recording.save(tmp_path))
    site = "layers.0.attention.weights"
    assert torch.equal(again.gradient(site), recording.gradient(site))


class Spread(NamedTuple):
    """What the weights of a query are like."""

    largest: Tensor
    count: Tensor


class Reduce:
    """Keeps the largest weight of each query."""

    def reduce(self, call):
        shape = (*call.query.shape[:3],)
        return Spread(torch.ones(shape), torch.tensor(call.key.shape[-2]))

    def of_weights(self, weights):
        return Spread(weights.amax(-1), torch.tensor(weights.shape[-1]))


def decoder(**settings):
    return new_model("decoder", **{"vocab_size": 4, "d_model": 8, **settings})


def reduced(**options):
    model = decoder(num_layers=2)
    edit = Change("layers.1.attention.weights", lambda weights: weights * 0.5)
    options["reduce"] = Reduce()
    with installed(model, edit), record(model, "*weights", **options) as recording:
        model(SOURCE)
    return recording


def test_what_was_reduced_is_kept_instead_and_comes_back(tmp_path):
    recording = reduced()
    again = Recording.load(recording.save(tmp_path))
    for each in (recording, again):
        first, second = each["layers.0.attention.weights"], each["layers.1.attention.weights"]
        assert torch.equal(first.largest, torch.ones(2, 4, 4))  # of the call: nobody opened it
        assert float(second.largest.max()) == 0.5  # of the edited weights
        assert int(first.count) == 4
        assert each.nbytes < 2 * (128 + 8) + 64 + 1000
        assert each.tokens("layers.0.attention.weights", 1).key == ["2", "0", "0", "0"]
        part = each.select(heads=[1], rows=0)
        assert part["layers.0.attention.weights"].largest.shape == (1, 1, 4)
        for ask, words in (
            (each.tile, "kept weights, scores and masks have tiles"),
            (lambda _, each=each: each.compare(each), "was reduced; only values can be compared"),
            (each.shape, "was reduced, so its value has no shape"),
        ):
            with pytest.raises(WrongUsage, match=words):
                ask("layers.0.attention.weights")


def test_reduce_is_checked():
    for sites, reduce, words in (
        ("*", lambda call: call, r"reduce needs reduce\(\) and of_weights\(\); got a function"),
        ("logits", Reduce(), "no weights are among the recorded sites"),
    ):
        with pytest.raises(WrongUsage, match=words), record(decoder(), sites, reduce=reduce):
            pass
    with pytest.raises(WrongUsage, match="cannot be reduced and have its gradient recorded"):
        reduced(gradients=True)
    with pytest.raises(CouldNotRun, match=r"keeping .* \(136 B\) would bring"):
        reduced(budget=150)


def test_a_recording_too_large_for_the_budget_is_not_read(folder, monkeypatch):
    monkeypatch.setattr(StateFolder, "get", lambda *_: pytest.fail("was read all the same"))
    with pytest.raises(CouldNotRun, match=r"would bring the recording to .*its budget is 1\.0 KiB"):
        open_recording(folder, budget=1024)


def test_every_flipped_or_missing_byte_of_the_numbers_is_found_out(folder):
    file = folder / "recording.safetensors"
    whole = file.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 20)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CouldNotRun):
            open_recording(folder)
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(CouldNotRun):
            open_recording(folder)
    file.unlink()
    with pytest.raises(CouldNotRun, match="could not read"):
        open_recording(folder)
    file.write_bytes(whole)
    open_recording(folder)


def spoilt(document):
    """Every way to take one thing out of a document, or to put something else in its place."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield {name: each for name, each in document.items() if name != key}
            for other in spoilt(value):
                yield {**document, key: other}
    elif isinstance(document, list):
        for place, value in enumerate(document[-1:], len(document) - 1):
            for other in spoilt(value):
                yield [*document[:place], other, *document[place + 1 :]]
    for other in (None, -1, "else", []):
        if other != document:
            yield other


@pytest.mark.parametrize("step", sampled([7, 1], 1))
def test_whatever_else_the_json_says_is_an_error_or_a_recording(step, tmp_path):
    model = decoder(d_model=4, num_heads=2)
    with torch.no_grad(), record(model, ["*attention.key", "*weights", "*mask"]) as recording:
        generate(model, SOURCE[:, :2], 2)
    for folder in (reduced().save(tmp_path / "reduced"), recording.save(tmp_path / "steps")):
        whole = json.loads((folder / "recording.json").read_text())
        count = 0
        for other in itertools.islice(spoilt(whole), 0, None, step):
            (folder / "recording.json").write_text(json.dumps(other))
            try:
                again = open_recording(folder)
            except CouldNotRun:
                count += 1
                continue
            for site in again:  # what is let in can be used, or says what is wrong
                try:
                    again.all(site)
                    again.tokens(site)
                except (WrongUsage, CouldNotRun):
                    pass
        assert count > 300 // step


def test_a_missing_or_foreign_json_is_an_error(folder, tmp_path):
    with pytest.raises(CouldNotRun, match=r"there is no recording in .*recording\.json is missing"):
        open_recording(tmp_path)
    write_json(folder / "recording.json", {"format": "something else"})
    with pytest.raises(CouldNotRun, match="is no recording: it does not say 'attnlab recording 2'"):
        open_recording(folder)
    (folder / "recording.json").write_text("{")
    with pytest.raises(CouldNotRun, match="could not read"):
        open_recording(folder)


def test_saving_over_another_recording_that_breaks_off_is_found_out(recording, folder, monkeypatch):
    monkeypatch.setattr(StateFolder, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        recording.select(rows=0).save(folder)
    with pytest.raises(CouldNotRun, match="its checksum is not the one"):
        open_recording(folder)


def test_the_folder_around_a_recording_will_do(recording, tmp_path):
    """What `attnlab look --out` wrote has the recording in a folder of its own."""
    recording.save(tmp_path / "recording")
    assert list(open_recording(tmp_path)) == list(recording)
    (tmp_path / "recording.json").write_text("{}")
    with pytest.raises(CouldNotRun, match="is no recording"):
        open_recording(tmp_path)
