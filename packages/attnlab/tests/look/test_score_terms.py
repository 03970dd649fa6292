"""Why a query looks at a key: the terms are those of the formulas, and sum to the model's score."""

import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.head_scores import HeadScores
from attnlab.look.heads import attentions, layer_name
from attnlab.look.partial_pass import ModuleNotes, ZeroPass
from attnlab.look.readout import FrozenNorm
from tests.pretrained.families import FAMILIES
from tests.pretrained.trying import tried
from tests.random_models import new_model, shaken
from tests.sampling import sampled

_SAMPLE = ("gpt2", "gemma2", "falcon (ALiBi)", "albert", "t5", "gpt_oss")
_WRITTEN_OUT = ("gpt_neo", "gptj", "codegen", "openai-gpt", "xglm", "bloom", "mpt", "deberta")
_WRITTEN_OUT += ("deberta_v2", "mpnet", "roformer", "big_bird (full)", "xlnet", "beit")
_MASKED = {"mistral", "modernbert"}  # a window hides the key that is asked for
_SUMMED = sampled([name for name in FAMILIES if name not in _WRITTEN_OUT], _SAMPLE)


def small(**config):
    return shaken(new_model("decoder", num_heads=2, **config))


TOKENS = torch.tensor([[1, 4, 2, 7, 5, 3]])
CELL = {"head": "1.1", "query": -1, "key": 2}


def test_terms_are_those_of_the_formula_by_hand():
    model = small(norm="rms")
    terms = attnlab.why(model, TOKENS, **CELL)
    with torch.no_grad():
        recording = attnlab.record(model, TOKENS)
        embedding, block, first = model.embedding, model.layers[1], model.layers[0].attention
        heads = recording["layers.0.attention.heads"][0]
        stream = recording["layers.1.residual_before"][0]

        def side(place, matrix):
            tokens = embedding.tokens.weight[TOKENS[0, place]]
            parts = [tokens, recording["embedding"][0, place] - tokens]
            for head in (0, 1):
                columns = first.output.weight[:, 8 * head : 8 * head + 8]
                parts.append(columns @ heads[head, place])
            parts.append(first.output.bias)
            parts.append(recording["layers.0.feed_forward.output"][0, place])
            scale = (stream[place].square().mean() + 1e-6).rsqrt() * block.norm_attention.weight
            rows = matrix.weight[8:]
            made = [rows @ (scale * part) for part in parts]
            return torch.stack([*made, matrix.bias[8:]])

        by_hand = side(5, block.attention.query) @ side(2, block.attention.key).T * 8**-0.5
    assert terms.query_parts[:3] == ["tokens", "positions", "head 0.0"]
    assert terms.query_parts[-2:] == ["feed-forward 0", "bias"]
    torch.testing.assert_close(terms.terms.float(), by_hand, rtol=0, atol=1e-5)
    torch.testing.assert_close(terms.of_query, terms.terms.sum(1))
    assert terms.score == pytest.approx(float(recording["layers.1.attention.scores"][0, 1, 5, 2]))
    assert terms.weight == pytest.approx(float(recording["layers.1.attention.weights"][0, 1, 5, 2]))


@pytest.mark.parametrize("name", _SUMMED)
def test_terms_sum_to_the_score_of_every_family_whose_queries_are_seen(name):
    model, inputs = tried(name).model, tried(name).first_row
    part = attentions(model)[-1]
    query = 1 if name in _MASKED else -1
    found = attnlab.why(model, inputs, head=f"{layer_name(part)}.1", query=query, key=1)
    assert found.error <= 1e-5 * max(1.0, abs(found.score))
    own = attnlab.record(model, inputs)[f"{part}.scores"][0, 1, query, 1]
    assert found.score == pytest.approx(float(own), abs=1e-6)
    assert int((found.of_query != 0).sum()) > 2


@pytest.mark.parametrize(
    "config", [{"norm_place": "post"}, {"positions": "rotary"}, {"num_kv_heads": 1}]
)
def test_terms_sum_to_the_score_of_every_kind_of_ours(config):
    assert attnlab.why(small(**config), TOKENS, **CELL).error < 1e-6


def test_a_bias_by_position_is_beside_the_terms():
    model = small(positions="alibi")
    terms = attnlab.why(model, TOKENS, **CELL)
    assert terms.position == pytest.approx(-3 * 2**-8)  # three back, in the second of two heads
    assert terms.error < 1e-6


def test_the_difference_from_another_key_is_that_of_the_two():
    model = small()
    one, other = (attnlab.why(model, TOKENS, **{**CELL, "key": key}) for key in (2, 0))
    both = attnlab.why(model, TOKENS, **CELL, against=0)
    torch.testing.assert_close(both.terms, one.terms - other.terms)
    assert both.score == pytest.approx(one.score - other.score)
    assert "less key 0 '1'" in str(both)


def forget_norms(monkeypatch):
    monkeypatch.setattr(FrozenNorm, "of", classmethod(lambda cls, *given: None))


def forget_positions(monkeypatch):
    monkeypatch.setattr(HeadScores, "_position", lambda self, *place: 0.0)


def take_another_head(monkeypatch):
    plain = ZeroPass.bias
    monkeypatch.setattr(
        ZeroPass, "bias", lambda self, vector: plain(self, vector._replace(head=1 - vector.head))
    )


def take_another_position(monkeypatch):
    plain = ZeroPass.matrices
    monkeypatch.setattr(
        ZeroPass,
        "matrices",
        lambda self, site, vectors: plain(self, site, list(reversed(vectors))),
    )


@pytest.mark.parametrize(
    "fault", [forget_norms, forget_positions, take_another_head, take_another_position]
)
def test_a_fault_ends_in_an_error_and_not_in_other_terms(monkeypatch, fault):
    model = small(positions="alibi")
    fault(monkeypatch)
    with pytest.raises(CouldNotRun):
        attnlab.why(model, TOKENS, **CELL)


class Mixing(torch.nn.Linear):
    """A projection that reads the position before, too."""

    def forward(self, x):
        return super().forward(x + x.roll(1, 1))


class Counting(torch.nn.Linear):
    """A projection that adds something by position."""

    def forward(self, x):
        return super().forward(x) + 0.1 * torch.arange(x.shape[1]).unsqueeze(1)


def test_a_query_that_is_made_of_other_positions_too_is_refused():
    model = small()
    model.layers[1].attention.query.__class__ = Mixing
    with pytest.raises(CouldNotRun, match="no part of the stream there"):
        attnlab.why(model, TOKENS, **CELL)


def test_a_module_that_does_not_treat_positions_apart_runs_at_all_of_them(monkeypatch):
    model = small()
    model.layers[1].attention.query.__class__ = Counting
    assert attnlab.why(model, TOKENS, **CELL).error < 1e-6
    monkeypatch.setattr(ModuleNotes, "_treats_apart", lambda self, module, rows: True)
    with pytest.raises(CouldNotRun):
        attnlab.why(model, TOKENS, **CELL)


class Noting(torch.nn.Linear):
    """A projection that notes how many positions it reads."""

    def forward(self, x):
        self.lengths.append(x.shape[1])
        return super().forward(x)


def test_a_projection_runs_once_for_the_text_and_then_at_the_asked_positions_alone(monkeypatch):
    model, lengths = small(), []
    query = model.layers[1].attention.query
    query.__class__, query.lengths = Noting, lengths
    attnlab.why(model, TOKENS, **CELL)
    assert lengths == [6, 2, 2]  # tried out once
    lengths.clear()
    monkeypatch.setattr(ModuleNotes, "_treats_apart", lambda self, module, rows: False)
    attnlab.why(model, TOKENS, **CELL)
    assert lengths == [6, 6]


def test_a_long_text_is_taken_apart_a_few_rows_at_a_time(monkeypatch):
    model = small()
    terms = attnlab.why(model, TOKENS, **CELL)
    monkeypatch.setattr("attnlab.look.partial_pass._MOST_GRADIENTS", 300)  # three rows of 6 · 16
    torch.testing.assert_close(attnlab.why(model, TOKENS, **CELL).terms, terms.terms)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gpt2", ["tokens", "positions", "head 0.0"]),
        ("bert", ["tokens", "token types", "positions", "embedding norm bias"]),
        ("llama", ["embedding", "head 0.0"]),
    ],
)
def test_the_embedding_is_taken_apart_where_it_is_a_sum(name, parts):
    model = tried(name).model
    terms = attnlab.why(model, model.example["input_ids"][:1], head="1.0", key=0)
    assert len(terms.query_parts) > len(parts)
    for found, part in zip(terms.query_parts, parts, strict=False):
        assert found.endswith(part)


def test_an_edit_of_the_stream_is_an_error():
    model = small()
    other = attnlab.edits.ScaleSite(site="layers.0.residual_after", factor=2.0)
    with attnlab.edit(model, other), pytest.raises(WrongUsage):
        attnlab.why(model, TOKENS, **CELL)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"head": "1"}, "names one head"),
        ({"head": "4.0"}, "no head 4.0; the layers with heads are 0 to 1"),
        ({"head": (0, 0)}, "a name such as"),
        ({"query": 6}, "from -6 to 5"),
        ({"key": "9"}, "no token is '9'"),
        ({"query": 1, "key": 3}, "masked"),
        ({"inputs": TOKENS.repeat(2, 1)}, "one input"),
    ],
)
def test_what_cannot_be_asked_is_said(given, words):
    given = {"inputs": TOKENS, **CELL, **given}
    with pytest.raises(WrongUsage, match=words):
        attnlab.why(small(), **given)


def test_a_token_that_is_there_twice_is_named_with_its_places():
    with pytest.raises(WrongUsage, match="more than once, at 0, 2"):
        attnlab.why(small(), [1, 4, 1, 7], head="0.0", key="1")


def test_a_model_without_queries_or_blocks_is_refused():
    model = tried("bloom").model
    with pytest.raises(CouldNotRun, match="no site"):
        attnlab.why(model, model.example, head="0.0", key=0)
    head = attnlab.SingleHead(attnlab.SingleHeadConfig())
    with pytest.raises(WrongUsage, match="no residual stream"):
        attnlab.why(head, torch.randn(1, 3, 3), head="0.0", key=0)


def test_a_model_in_half_precision_is_taken_apart_within_its_own_rounding():
    terms = attnlab.why(small().bfloat16(), TOKENS, **CELL)
    assert 1e-6 < terms.error < 16 * 2**-7


def test_nothing_of_the_model_is_left_changed():
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = model(TOKENS)
    attnlab.why(model, TOKENS, **CELL)
    assert torch.equal(model(TOKENS), plain)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_terms_are_shown_drawn_and_written():
    terms = attnlab.why(small(), TOKENS, **CELL)
    title, _, first, *_ = str(terms).splitlines()
    assert title.startswith("head 1.1, query 5 '3', key 2 '2': score ")
    assert first.split()[0] == f"{terms.top(1)[0][2]:+.3f}"
    (table,) = terms.number_tables()
    assert len(table.rows) == len(terms.query_parts)
    assert sum(map(sum, table.values)) + terms.position == pytest.approx(terms.score, abs=1e-5)
    assert terms.to_mapping()["query_parts"] == terms.query_parts


def test_edits_behind_the_attention_land_all_the_same():
    model = small()
    plain = attnlab.why(model, TOKENS, **{**CELL, "head": "0.1"})
    with attnlab.edit(model, attnlab.ZeroHead(layer=1, head=0)) as certificate:
        terms = attnlab.why(model, TOKENS, **{**CELL, "head": "0.1"})
    assert "1" in str(certificate)
    torch.testing.assert_close(terms.terms, plain.terms)


def test_the_score_is_the_models_own_to_the_last_bit_and_the_pass_ends_after_it():
    model, calls = small(norm="rms"), []
    model.layers[1].feed_forward.register_forward_hook(lambda *given: calls.append(1))
    terms = attnlab.why(model, TOKENS, **CELL)
    assert not calls
    own = attnlab.record(model, TOKENS)["layers.1.attention.scores"][0, 1, 5, 2]
    assert terms.score == float(own)
