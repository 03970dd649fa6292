"""Names of heads: what is printed anywhere can be typed back, and means the same head."""

import pytest

from attnlab.edits import ZeroHead
from attnlab.edits.effects import PatchTarget
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look import heads
from tests.random_models import random_model


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder", "single head"])
def test_the_name_of_every_head_is_read_back_as_that_head(kind):
    model = random_model(kind, 0)
    parts = heads.attentions(model)
    names = []
    for part in parts:
        site = f"{part}.weights" if part else "weights"
        for head in range(heads.number_of_heads(model, part)):
            name = heads.head_at(site, head)
            edit = ZeroHead(**heads.read_head(name))
            if kind != "single head":
                assert edit.sites(model) == [f"{part}.heads"]
                assert edit.heads_in(heads.number_of_heads(model, part), part) == [head]
            assert heads.chosen_heads(model, parts, [name]) == {part: [head]}
            assert str(PatchTarget(part, head)) == f"head {name}"
            names.append(name)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("layers.11.attention", "11.1"),
        ("encoder.layers.0.attention", "encoder 0.1"),
        ("decoder.layers.0.attention", "decoder 0.1"),
        ("decoder.layers.0.cross_attention", "cross 0.1"),
        ("layers.0.cross_attention", "cross 0.1"),
        ("blocks.2.attn", "blocks.2.attn.1"),
        ("", "0.1"),
    ],
)
def test_a_head_has_one_name(part, name):
    assert heads.head_name(part, 1) == name


def test_a_head_counted_from_the_end_is_read_too():
    last = ZeroHead(**heads.read_head("cross -1.-1")).sites(random_model("encoder-decoder"))
    assert last == ["decoder.layers.1.cross_attention.heads"]


@pytest.mark.parametrize("wrong", ["", "1", "a", "0.x", "middle 0.1", "encoder", "encoder 0"])
def test_what_is_no_name_of_a_head_is_refused_with_the_names_there_are(wrong):
    with pytest.raises(WrongUsage, match=r"LAYER\.HEAD, such as 0\.1, 'encoder 0\.1' or"):
        heads.read_head(wrong)


def test_layers_are_listed_as_numbers():
    numbers = list(map(str, range(12)))
    assert did_you_mean("x", numbers).endswith(", ".join(numbers))
    names = ["encoder 10", "encoder 9", "2.a", "2"]
    assert did_you_mean("x", names).endswith("2, 2.a, encoder 9, encoder 10")


def test_the_layers_that_a_wrong_head_is_answered_with_are_those_of_the_model():
    with pytest.raises(WrongUsage, match=r"nor a layer; known: 0, 1, 2$"):
        heads.heads_named(["x"], {f"layers.{layer}.attention": 4 for layer in range(3)})
    with pytest.raises(WrongUsage, match=r"did you mean 'layers\.1\.attention'"):
        heads.heads_named(["layers.1.atention.2"], {"layers.1.attention": 4})
