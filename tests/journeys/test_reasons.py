"""What every head does, whether it matters, why it looks there, and which place carries the answer:
the commands of the docs on a small model, checked against what Python says of the same."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.journeys.conftest import Home

pytest.importorskip("transformers")

from tests.pretrained.speaking import saved

TEXTS = [
    "the cat sat on the mat and the dog sat on the cat",
    "John and Mary went to the store.",
    "a warm funny film with a heart",
    "Mary gave a drink to John.",
    "the dog sat on the mat",
    "a film with a cat and a dog",
    "",
    "John sat on the store",
]
CLEAN = "John and Mary went to the store. Mary gave a drink to"
CORRUPTED = "John and Mary went to the store. John gave a drink to"


@pytest.fixture
def at_home(home: Home) -> Home:
    """A home whose folder holds a small model with its tokenizer, and texts in a table."""
    saved("gpt2", home.here / "model")
    rows = "".join(f'{number},"{text}"\n' for number, text in enumerate(TEXTS))
    (home.here / "reviews.csv").write_text("id,text\n" + rows)
    return home


def test_a_census_in_shares_says_the_same(at_home: Home, visit: Callable[..., Any]) -> None:
    command = "attnlab census model --corpus reviews.csv"
    rate = at_home.run(f"{command} --estimate --price 2").out
    assert "a billion tokens: " in rate
    assert "at 2 an hour" in rate
    told = at_home.run(f"{command} --out whole --effects 7").out
    assert "texts read 7" in told
    assert "rows left out 1" in told  # read and left out are all there were
    assert "largest effects first" in told
    for share in (1, 2):
        at_home.run(f"{command} --shard {share}/2 --out share-{share}")
    at_home.run("attnlab census merge share-1 share-2 --out merged --model model --effects 7")
    tables = [at_home.here / name / "heads.parquet" for name in ("whole", "merged")]
    if all(table.exists() for table in tables):
        assert tables[0].read_bytes() == tables[1].read_bytes()
    again = at_home.run(f"{command} --out whole", status=2).err
    assert "--resume" in again
    page = visit(at_home.here / "whole" / "page.html")
    words = page.inner_text("body")
    assert "8 heads over 7 texts of reviews.csv" in words
    assert "Whether they matter" in words
    assert page.locator("canvas").count() > 0


def test_why_a_head_looks_there_is_a_sum_and_a_key_mistyped_is_answered(at_home: Home) -> None:
    command = f'attnlab why model "{CLEAN}" --head 1.2'
    found = json.loads(at_home.run(f"{command} --query gave --key John --json").out)
    terms = sum(map(sum, found["terms"])) + found["position"]
    assert terms == pytest.approx(found["score"], abs=1e-5)
    wrong = at_home.run(f"{command} --query gave --key Johm", status=2).err
    assert "John" in wrong


def test_patching_finds_the_place_that_differs_and_an_estimate_says_that_it_is_one(
    at_home: Home, visit: Callable[..., Any]
) -> None:
    command = f'attnlab patch model "{CLEAN}" "{CORRUPTED}"'
    told = at_home.run(f"{command} --out patched").out
    assert "position 8 '␣Mary / ␣John'" in told
    page = visit(at_home.here / "patched" / "page.html")
    words = page.inner_text("body")
    assert all(part in words for part in ("logit of", CLEAN, CORRUPTED))
    patched = json.loads((at_home.here / "patched" / "patches.json").read_text())
    assert patched["texts"] == [[CLEAN, CORRUPTED]]
    printed = at_home.python(f"""
import attnlab
model = attnlab.load("model")
print(float(attnlab.patch_all(model, {CLEAN!r}, {CORRUPTED!r}).effects.abs().max()))
""").out
    assert abs(patched["patches"][0]["effect"]) == pytest.approx(float(printed), abs=1e-6)
    assert "not patched" in at_home.run(f"{command} --what heads --estimate gradient").out
    (at_home.here / "pairs.csv").write_text(
        f'clean,corrupted\n"{CLEAN}","{CORRUPTED}"\n"the cat sat","the dog sat"\n"{CLEAN}","Mary"\n'
    )
    pairs = at_home.run("attnlab patch model --pairs pairs.csv").out
    assert "2 pairs patched, 1 refused" in pairs
    assert "pair 3" in pairs
