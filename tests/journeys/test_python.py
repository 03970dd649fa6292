"""Python: the habits of a person who comes from another library, line by line."""

from pathlib import Path

import pytest

from tests.journeys.conftest import Home

pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

from tests.pretrained.speaking import saved

OPENED = """
import webbrowser
webbrowser.open = lambda address: True  # a browser that says nothing
import attnlab
model = attnlab.load("model")
clean = "John and Mary went to the store. Mary gave a drink to"
corrupted = "John and Mary went to the store. John gave a drink to"
"""

HABITS = """
recording = attnlab.record(model, clean)              # run_with_cache
pattern = recording["layers.0.attention.weights"]     # cache["pattern", 0]
print("pattern", tuple(pattern.shape), recording["logits"].shape[-1])
print(attnlab.logit_lens(model, clean))
print(attnlab.ablate(model, clean, target=" Mary"))
patches = attnlab.patch_all(model, clean, corrupted, target=" Mary")
print(patches)
print(attnlab.patch_all(model, clean, corrupted, target="Mary").after.equal(patches.after))
print(attnlab.direct_logits(model, clean, target=" Mary", others=" John"))
question = attnlab.ask(model, clean, target=" Mary")
print(question)

for figure in (
    attnlab.plot.heads(recording),
    attnlab.plot.head(recording, 0, 1),
    attnlab.plot.head(recording, layer=0, head=1),
    attnlab.plot.measure(patches),
    attnlab.plot.measure(attnlab.ablate(model, clean)),
):
    attnlab.plot.save(figure, "figure.png")
for thing in (model, recording, patches, question):
    print("page", attnlab.show(thing).stat().st_size > 10_000)
"""

WRONG = """
def refused(call):
    try:
        call()
    except (attnlab.AttnlabError, AttributeError) as error:
        print("|", str(error))

refused(lambda: attnlab.from_pretrained)
refused(lambda: model.run_with_cache)
refused(lambda: attnlab.record(model, "blocks.0.attn.hook_pattern"))
refused(lambda: attnlab.record(model, "layers.0.atention.weights"))
refused(lambda: attnlab.record("gpt2", clean))
refused(lambda: attnlab.show(attnlab.record(model, "*.weights")))
refused(lambda: attnlab.ablate(model, clean, target=" Mary gave"))
refused(lambda: attnlab.patch_all(model, clean, "Mary gave"))
refused(lambda: attnlab.plot.head(attnlab.record(model, clean), 9, 0))
"""


@pytest.fixture
def at_home(home: Home) -> Home:
    """A home whose folder holds a small model with its tokenizer."""
    saved("gpt2", home.here / "model")
    return home


def test_the_first_guesses_of_a_person_from_another_library_work(at_home: Home) -> None:
    printed = at_home.python(OPENED + HABITS).out
    assert "pattern (1, 4, 13, 13)" in printed
    assert "logit of '␣Mary' less that of '␣John', last position, 1 input" in printed
    assert "position 8 '␣Mary / ␣John'" in printed
    assert "text         John and Mary went to the store. Mary gave a drink to" in printed
    assert "right        ␣Mary" in printed
    assert "\nTrue\n" in printed
    assert printed.count("page True") == 4


def test_wrong_calls_end_in_one_sentence_that_says_what_to_do(at_home: Home) -> None:
    lines = at_home.python(OPENED + WRONG).out.strip().split("\n| ")
    expected = [
        "did you mean 'load'?",
        "attnlab.record(",
        "did you mean 'layers.0.attention.weights'?",
        "did you mean 'layers.0.attention.weights'?",
        "attnlab.load('gpt2') opens a model",
        "run the model inside the with, or record inputs at once",
        "is 2 tokens here, '␣Mary' '␣gave', and a target is one",
        "patching needs two texts of equally many tokens",
        "there is no layer 9; known: 0, 1",
    ]
    assert len(lines) == len(expected)
    for line, words in zip(lines, expected, strict=True):
        assert words in line
        assert "\n" not in line


def test_the_model_of_a_run_is_asked_with_letters_and_names_them(home: Home, sorter: Path) -> None:
    program = f"""
import attnlab
model = attnlab.load({str(sorter)!r})
recording = attnlab.record(model, "cab")
print(recording.tokens("layers.0.attention.weights").query)
print(attnlab.ask(model, "cab"))
print(attnlab.logit_lens(model, "cab"))
print(attnlab.ablate(model, "cab", target="a").before.shape)
"""
    printed = home.python(program).out
    assert "['c', 'a', 'b', 'SEP'" in printed
    assert "answer       a b c" in printed
    assert "SEP 0." in printed or "a 0." in printed or "a 1." in printed
    assert "torch.Size([1])" in printed
