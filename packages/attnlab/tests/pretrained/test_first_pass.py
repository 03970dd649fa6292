"""The first pass of a stranger's model: it reads a small input made for it, or one sentence says
why it cannot."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun
from attnlab.pretrained.attach import attach
from attnlab.pretrained.probe import probe_inputs
from tests.pretrained.folders import llama

pytest.importorskip("transformers")


@pytest.mark.parametrize("ends", [[2, 3], [2], list(range(16)), -1])
def test_a_model_whose_texts_may_end_in_several_tokens_loads_and_is_probed_without_them(
    ends: Any, tmp_path
) -> None:
    model = attnlab.load(llama(tmp_path / "model", eos_token_id=ends))
    probed = set(probe_inputs(model.foreign)["input_ids"].flatten().tolist())
    assert probed <= set(range(16))
    if ends == [2, 3]:
        assert not probed & {1, 2, 3}


@pytest.mark.parametrize(
    "name", ["num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings"]
)
def test_a_negative_count_is_named(name: str, tmp_path) -> None:
    with pytest.raises(
        CouldNotRun, match=rf"config\.json: {name} is -1; expected a number of at least 0\.$"
    ):
        attnlab.load(llama(tmp_path / "model", **{name: -1}))


def test_numbers_that_may_be_negative_pass(tmp_path) -> None:
    attnlab.load(
        llama(
            tmp_path / "model", max_relative_positions=-1, vision_feature_layer=-2, pad_token_id=-1
        )
    )


def test_outputs_without_names_are_refused_with_what_to_remove(tmp_path) -> None:
    with pytest.raises(CouldNotRun, match=r"return_dict is false, .* Remove the key\.$"):
        attnlab.load(llama(tmp_path / "model", return_dict=False))


def test_a_config_without_a_type_is_refused_with_what_to_add(tmp_path) -> None:
    with pytest.raises(
        CouldNotRun,
        match=r'does not say model_type.*add its type, such as "model_type": "llama"\.$',
    ):
        attnlab.load(llama(tmp_path / "model", model_type=None))


class Plain(nn.Module):
    """One block of torch, and whatever is made of what it gives."""

    def __init__(self, makes: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.makes = makes

    def forward(self, vectors: Tensor) -> Any:
        return self.makes(self.block(vectors))


EXAMPLE = torch.linspace(-1, 1, 40).reshape(1, 5, 8)


@pytest.mark.parametrize(
    ("makes", "what"),
    [
        (torch.sum, "a single number"),
        (lambda found: (found.sum(), found), "a single number"),
        (lambda found: float(found.sum()), "no tensor"),
        (lambda found: None, "no tensor"),
    ],
)
def test_a_model_that_returns_a_number_is_refused(
    makes: Callable[[Tensor], Any], what: str
) -> None:
    with pytest.raises(CouldNotRun, match=rf"^Plain returns {what}, .*\(batch, length, width\)\.$"):
        attach(Plain(makes), example={"vectors": EXAMPLE})


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ({"vector": EXAMPLE}, "unexpected keyword argument 'vector'"),
        ({"vectors": EXAMPLE[..., :7]}, "was expecting embedding dimension of 8, but got 7"),
        ({"vectors": "a text"}, "AttributeError"),
        ({}, "missing 1 required"),
    ],
)
def test_an_example_that_does_not_fit_is_told_with_what_the_model_takes(
    example: Any, words: str
) -> None:
    with pytest.raises(
        CouldNotRun, match=rf"could not run on the example \(.*{words}.*It takes \(vectors\); give"
    ):
        attach(Plain(lambda found: found), example=example)


def test_settings_that_make_no_input_are_told_likewise() -> None:
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        vocab_size=9,
        return_dict=False,
    )
    with pytest.raises(
        CouldNotRun, match=r"could not run on a small input made from its settings \(AttributeError"
    ):
        attach(transformers.LlamaForCausalLM(config))
