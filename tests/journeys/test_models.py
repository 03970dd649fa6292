"""A person looks into models that attnlab did not make: one that they wrote, and one of Hugging
Face in a folder. What is shown mixes the tokens, looking moves nothing, and the model stays as it
was."""

import pytest

from tests.journeys.conftest import Home

WRITTEN = """
import torch
from torch import nn

class Attention(nn.Module):
    '''Causal attention; the mask multiplies the weights, and a counter counts.'''

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.register_buffer("calls", torch.tensor(0))
        self.last = None

    def forward(self, x):
        self.calls += 1
        self.last = x
        q, k, v = (f(x).unflatten(-1, (4, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.mT / 2).softmax(-1) * torch.ones(x.shape[1], x.shape[1]).tril()
        weights = weights / weights.sum(-1, keepdim=True)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Attention(), Attention()])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x
"""

LOOK = """
before = {name: value.clone() for name, value in model.state_dict().items()}
lab = attnlab.load({load})
after = model.state_dict()
assert all(torch.equal(before[name], after[name]) for name in before), "loading changed the model"

with torch.no_grad():
    plain = run(model)
    with attnlab.record(lab, "*") as recording:
        recorded = run(model)
    with attnlab.edit(lab, attnlab.edits.ScaleHead(layer=0, head=0, factor=1.0), certify=False):
        unedited = run(model)
    with attnlab.edit(lab, attnlab.ZeroHead(layer=0, head=0)) as certificate:
        edited = run(model)
assert torch.equal(plain, recorded), "recording moved the output"
assert torch.equal(plain, unedited), "an edit of nothing moved the output"
assert not torch.equal(plain, edited) and certificate.holds
assert torch.equal(plain, run(model)), "an edit stayed in the model"

weights = recording["layers.1.attention.weights"]
value, heads = recording["layers.1.attention.value"], recording["layers.1.attention.heads"]
value = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
assert torch.allclose(weights @ value, heads, atol=1e-5), "other weights mix the tokens"
assert float(weights.triu(1).abs().max()) == 0.0, "a token sees what comes after it"
print(sorted(recording.witness()), "off by less than", 1e-5 > max(recording.witness().values()))
"""

WITNESSED = "['layers.0.attention', 'layers.1.attention'] off by less than True"


def test_a_hand_written_model_is_looked_into_and_stays_as_it_was(home: Home) -> None:
    program = (
        WRITTEN
        + """
import attnlab
torch.manual_seed(0)
model, x = Model().eval(), torch.randn(2, 6, 16)
run = lambda model: model(x)
"""
        + LOOK.replace("{load}", "model, example=(x,)")
    )
    # It never ran before it was loaded; its counter and what it saw last are still as they were.
    program = program.replace("after = ", "assert model.layers[0].last is None\nafter = ", 1)
    assert WITNESSED in home.python(program).out


def test_a_hugging_face_folder_is_looked_into_and_stays_as_it_was(
    home: Home,
) -> None:
    pytest.importorskip("transformers")
    home.python("""
import torch, transformers
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3,
)
transformers.LlamaForCausalLM(config).save_pretrained("tiny")
""")
    look = home.run("attnlab doctor tiny").out
    assert "layers.*.attention: 2" in look
    program = """
import torch, transformers, attnlab
model = transformers.LlamaForCausalLM.from_pretrained("tiny").eval()
ids = torch.arange(3, 17).reshape(2, 7)
run = lambda model: model(ids, use_cache=False).logits
""" + LOOK.replace("{load}", "model")
    assert WITNESSED in home.python(program).out
    opened = """
import torch, attnlab
lab = attnlab.load("tiny")
with torch.no_grad(), attnlab.record(lab, "*") as recording:
    lab(torch.arange(3, 17).reshape(2, 7))
print(max(recording.witness().values()) < 1e-5)
"""
    assert home.python(opened).out.strip() == "True"
