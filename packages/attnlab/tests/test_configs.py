from dataclasses import dataclass
from typing import Literal

import pytest

from attnlab.configs import Config, option, parse_settings
from attnlab.errors import WrongUsage


@dataclass(frozen=True, kw_only=True)
class Garden(Config):
    trees: int = option(3, "how many trees", low=1, high=9)
    water: float = option(0.5, "litres a day", low=0.0)
    fence: bool = option(True, "whether there is one")
    kind: Literal["kitchen", "park"] = option("park", "what for")
    gardener: str | None = option(None, "who tends it")


def test_defaults_are_taken_and_integers_become_floats():
    garden = Garden(water=2)
    assert garden.trees == 3
    assert isinstance(garden.water, float)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trees": 0}, "trees must be an integer from 1 to 9; got 0."),
        ({"trees": 2.5}, "trees must be an integer from 1 to 9; got 2.5."),
        ({"trees": 10**5000}, "from 1 to 9; got an integer of 16,610 bits."),
        ({"water": 10**400}, "of at least 0; got an integer of 1,329 bits."),
        ({"kind": ["park"]}, "kind must be one of kitchen, park; got ['park']."),
        ({"kind": "p" * 100}, f"kind must be one of kitchen, park; got '{'p' * 76}...."),
        ({"trees": True}, "trees must be an integer from 1 to 9; got True."),
        ({"water": -0.1}, "water must be a number of at least 0; got -0.1."),
        ({"water": float("nan")}, "water must be a number of at least 0; got nan."),
        ({"water": "much"}, "water must be a number of at least 0; got 'much'."),
        ({"fence": 1}, "fence must be true or false; got 1."),
        ({"kind": "zoo"}, "kind must be one of kitchen, park; got 'zoo'."),
        ({"gardener": 3}, "gardener must be a text or none; got 3."),
    ],
)
def test_a_wrong_value_says_what_was_expected_and_what_came(fields, message):
    with pytest.raises(WrongUsage) as caught:
        Garden(**fields)
    assert str(caught.value).endswith(message)


def test_an_unknown_key_is_an_error_with_a_suggestion():
    with pytest.raises(WrongUsage, match="no setting 'tree'; did you mean 'trees'"):
        Garden.from_mapping({"tree": 1})
    with pytest.raises(WrongUsage, match="did you mean 'water'"):
        Garden().with_settings({"watr": "1"})


def test_settings_are_read_from_text():
    garden = Garden().with_settings(
        {"trees": " 7 ", "water": "1e-1", "fence": "No", "kind": "kitchen", "gardener": "Ann"}
    )
    assert garden == Garden(trees=7, water=0.1, fence=False, kind="kitchen", gardener="Ann")
    assert garden.with_settings({"gardener": "none"}).gardener is None
    assert garden.with_settings({"trees": "1e0"}).trees == 1  # as people write it


@pytest.mark.parametrize(
    ("name", "text", "fact"),
    [
        *(("trees", "3.0", "must be"), ("trees", "", "must be"), ("trees", "1e1", ".*; got 10")),
        *(("fence", "maybe", "must be"), ("water", "inf", "must be")),
    ],
)
def test_a_text_that_is_no_value_is_an_error(name, text, fact):
    with pytest.raises(WrongUsage, match=f"^{name} {fact}"):
        Garden().with_settings({name: text})


def test_a_config_survives_json():
    garden = Garden(trees=4, gardener="Bo")
    assert Garden.from_mapping(garden.to_mapping()) == garden


def test_a_setting_without_key_or_value_or_given_twice_is_an_error():
    for text in ("rank", "=3", "rank=", " = "):
        with pytest.raises(WrongUsage, match="key=value"):
            parse_settings([text])
    with pytest.raises(WrongUsage, match="given twice"):
        parse_settings(["rank=1", "rank=2"])
