"""The memory budget: counted rightly, and enforced before it is exceeded."""

import pytest
import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import record
from attnlab.look.recording import budget as budgets
from tests.random_models import new_model

TOKENS = torch.zeros(1, 64, dtype=torch.int64)
SITES = ["layers.*.attention.weights", "layers.*.residual_after"]
SITE = "layers.0.attention.weights"
QUERY = KEY = RESIDUAL = 64 * 16 * 4
WEIGHTS = 4 * 64 * 64 * 4


@pytest.fixture(scope="module")
def model():
    return new_model("decoder", vocab_size=4, max_length=64, num_layers=3)


def recorded(model, sites=SITES, **options):
    with torch.no_grad(), record(model, sites, **options) as recording:
        model(TOKENS)
    return recording


def test_what_is_kept_is_counted_to_the_byte(model):
    assert recorded(model)._store.budget.held == recorded(model).nbytes
    assert recorded(model).nbytes == TOKENS.nbytes + 3 * (QUERY + KEY + RESIDUAL)
    several = recorded(model, ["*weights", "*scores", "*query", "*key"])
    assert several.nbytes == TOKENS.nbytes + 3 * (QUERY + KEY)


def test_a_recording_never_holds_more_than_its_budget(model, monkeypatch):
    need = recorded(model).nbytes
    assert recorded(model, budget=need).nbytes == need
    copied = []
    whole = torch.Tensor.to
    watched = lambda value, *a, **k: copied.append(value.nbytes) or whole(value, *a, **k)  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "to", watched)
    for budget in range(1, need, need // 20):
        copied.clear()
        with pytest.raises(CouldNotRun, match="its budget is"):
            recorded(model, budget=budget)
        assert sum(copied) <= budget  # asked before it was copied


def test_the_error_says_what_costs_what_and_what_to_do(model):
    with pytest.raises(CouldNotRun) as caught:
        recorded(model, budget="30 KiB")
    for words in (
        "keeping layers.2.attention.weights (4.0 KiB) would bring the recording to 32.5 KiB; its "
        "budget is 30.0 KiB. The largest held so far is layers.0.attention.weights, 8.0 KiB.",
        "keep a summary instead of the weights (reduce=)",
    ):
        assert words in str(caught.value)


def test_weights_too_large_for_the_budget_can_be_looked_at_in_tiles(model):
    recording = recorded(model, budget=50_000)
    with pytest.raises(CouldNotRun, match=r"Ask for a part with tile\(site, head="):
        recording[SITE]
    tile = recording.tile(SITE, head=2, queries=slice(8, 16), keys=slice(4, 40))
    assert torch.equal(tile, recorded(model)[SITE][0, 2, 8:16, 4:40])
    with pytest.raises(CouldNotRun, match=r"making a tile of layers\.0\.attention\.weights takes"):
        recording.tile(SITE)


def test_gradients_are_counted_before_they_come(model):
    with record(model, "logits", gradients=True) as recording:
        output = model(TOKENS)
        assert recording._store.budget.held == TOKENS.nbytes + 2 * 64 * 4 * 4
        output.sum().backward()
    assert recording.nbytes == TOKENS.nbytes + 2 * 64 * 4 * 4


def test_a_budget_is_read():
    sizes = {"2 GiB": 2**31, "1.5kib": 1536, "500 MB": 500_000_000, "7 B": 7, "1 TiB": 2**40}
    for words, size in {**sizes, "7": 7, 12: 12, 0: 0}.items():
        assert budgets.to_bytes(words) == size
    for words in ("", "much", "2 GiBs", "-1", -1, True, 1.5, "1e3", [1]):
        with pytest.raises(WrongUsage, match="budget is a number of bytes or a text such as"):
            budgets.to_bytes(words)


def test_without_a_budget_it_is_half_of_what_is_available():
    available = budgets.free_memory()
    if available is not None:
        assert 0.2 * available < budgets.to_bytes(None) < 0.8 * available


def test_sizes_are_written_for_people():
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 * 2**29: "1.5 GiB", 2**52: "4096.0 TiB"}
    assert {size: budgets.in_words(size) for size in sizes} == sizes
