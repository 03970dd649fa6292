"""Circuits of heads are those of dense algebra in NumPy, and what has no such matrix is refused."""

import numpy as np
import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import compositions, head_matrices
from attnlab.look.factored import FactoredMatrix
from attnlab.look.heads import attentions, layer_name
from attnlab.look.readout import FrozenNorm
from attnlab.seeds import generator
from tests.pretrained.families import FAMILIES
from tests.pretrained.trying import tried
from tests.random_models import new_model, shaken
from tests.sampling import sampled

_SAMPLE = ("bert", "gpt2", "gemma2", "t5", "albert")
_SCALED = ("bert", "llama", "t5")  # without norms of queries and keys
_REFUSED = ("gpt_neo", "gptj", "codegen", "openai-gpt", "xglm", "bloom", "mpt", "deberta")
_REFUSED += ("deberta_v2", "mpnet", "roformer", "big_bird (full)", "xlnet", "beit", "swin")
_FOUND = sampled([name for name in FAMILIES if name not in _REFUSED], _SAMPLE)


def small(**config):
    return shaken(new_model("decoder", **config), 0.3)


def array(parameter):
    return parameter.detach().double().numpy()


def norm_matrix(norm):
    """A norm at the scale 1: its gain, and what takes the mean off."""
    width = len(norm.weight)
    centered = np.eye(width) - (1 / width if getattr(norm, "bias", None) is not None else 0.0)
    return np.diag(array(norm.weight)) @ centered


def agree(found, projections, reads, layer, layout):
    """Hold OV and QK of a layer's heads against their weights, multiplied out."""
    heads, shared = layout
    query, key, value, output = (array(projection.weight) for projection in projections)
    width = len(query) // heads
    for head in range(heads):
        group = head // (heads // shared)
        rows, shared_rows = (slice(each * width, (each + 1) * width) for each in (head, group))
        qk = (query[rows] @ reads).T @ key[shared_rows] @ reads * width**-0.5
        ov = output[:, rows] @ value[shared_rows] @ reads
        circuit = found[f"{layer}.{head}"]
        for one, other in ((circuit.ov, ov), (circuit.qk, qk)):
            np.testing.assert_allclose(one.dense(), other, rtol=0, atol=3e-5)


def check_ours(model):
    found = attnlab.circuits(model)
    for layer, block in enumerate(model.layers):
        part = block.attention
        reads = norm_matrix(block.norm_attention) if block.norm_place == "pre" else np.eye(16)
        agree(found, (part.query, part.key, part.value, part.output), reads, layer, part.layout)


CONFIGS = [
    {"norm": "layer"}, {"norm": "rms"}, {"norm_place": "post"}, {"norm_place": "none"},
    {"positions": "rotary"}, {"num_kv_heads": 2}, {"num_kv_heads": 1},
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_circuits_of_ours_are_those_of_dense_algebra(config):
    check_ours(small(**config))


def tile_groups(monkeypatch):
    monkeypatch.setattr(
        head_matrices, "share_heads", lambda x, heads: x.repeat(heads // len(x), 1, 1)
    )


def forget_the_scale(monkeypatch):
    monkeypatch.setattr(head_matrices, "scale_factor", lambda scale, width: 1.0)


def keep_the_scale_of_norms(monkeypatch):
    monkeypatch.setattr(FrozenNorm, "at_unit_scale", lambda norm: norm)


@pytest.mark.parametrize("fault", [tile_groups, forget_the_scale, keep_the_scale_of_norms])
def test_dense_algebra_sees_a_fault(monkeypatch, fault):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check_ours(small(num_kv_heads=2))


def test_circuits_of_llama_are_those_of_its_weights():
    model = tried("llama").model
    layer = model.foreign.model.layers[1]
    part, reads = layer.self_attn, np.diag(array(layer.input_layernorm.weight))
    projections = part.q_proj, part.k_proj, part.v_proj, part.o_proj
    agree(attnlab.circuits(model, ["1"]), projections, reads, 1, (4, 2))


@pytest.mark.parametrize("name", _SCALED)
def test_the_scores_of_a_family_are_those_of_its_circuits_but_for_the_scale_of_norms(name):
    model, inputs = tried(name).model, tried(name).first_row
    part = [part for part in attentions(model) if "cross" not in part][-1]
    site = f"{part.rpartition('.')[0]}.residual_before"
    stream = attnlab.record(model, inputs)[site][0, 1].double()
    found, ratios = attnlab.circuits(model, [layer_name(part)]), []
    for number in (0, 1):
        head = f"{layer_name(part)}.{number}"
        terms = attnlab.why(model, inputs, head=head, query=1, key=1)
        whole = float(stream @ found[head].qk.dense() @ stream)
        ratios.append(float(terms.terms[:-1, :-1].sum()) / whole)
    assert ratios[0] > 0
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-3)


@pytest.mark.parametrize("name", _FOUND)
def test_circuits_are_found_in_every_family_whose_queries_are_seen(name):
    found = attnlab.circuits(tried(name).model)
    for circuit in found:
        assert min(float(circuit.ov.norm), float(circuit.qk.norm)) > 0
        assert circuit.copying is None or abs(circuit.copying) <= 1
    for kind in found.compositions(samples=40).scores.values():
        assert float(kind.nan_to_num().max()) <= 1.0 + 1e-9


def factored(seed=0, values=(3.0, 2.0, 2.0, 1.0), precision=1e-9):
    source = generator(seed)
    rows, columns = (
        torch.linalg.qr(torch.randn(size, 4, dtype=torch.float64, generator=source))[0]
        for size in (9, 7)
    )
    turn = torch.randn(4, 4, dtype=torch.float64, generator=source)
    left = rows @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ turn
    return FactoredMatrix(left, torch.linalg.solve(turn, columns.T), precision)


def test_a_factored_matrix_is_that_which_is_multiplied_out():
    one = factored()
    other = FactoredMatrix(torch.randn(7, 3).double(), torch.randn(3, 9).double(), 0.0)
    dense = one.dense().numpy()
    assert one.shape == dense.shape == (9, 7)
    np.testing.assert_allclose((one @ other).dense(), dense @ other.dense().numpy(), atol=1e-12)
    assert (one @ other).left.shape[1] == 3
    np.testing.assert_allclose(one.T.dense(), dense.T)
    np.testing.assert_allclose(one.norm, np.linalg.norm(dense))
    np.testing.assert_allclose(one.svd().values, np.linalg.svd(dense)[1][:4], atol=1e-12)
    square = (one @ other).dense().numpy()
    eigenvalues = sorted(np.linalg.eigvals(square), key=abs)[-3:]
    found = (one @ other).eigenvalues().numpy()
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(eigenvalues), atol=1e-10)
    copying = sum(eigenvalues).real / sum(map(abs, eigenvalues))
    assert (one @ other).copying() == pytest.approx(copying)
    with pytest.raises(WrongUsage, match="columns of the first"):
        one @ one
    with pytest.raises(WrongUsage, match="square"):
        one.eigenvalues()


def test_singular_vectors_are_named_only_where_they_stand_apart():
    groups = factored().directions()
    assert [group.size for group in groups] == [1, 2, 1]
    assert "a subspace of 2" in repr(factored())
    dense = factored().dense()
    left, _, _ = torch.linalg.svd(dense)
    plane = groups[1].left @ groups[1].left.T
    torch.testing.assert_close(plane, left[:, 1:3] @ left[:, 1:3].T)
    # A matrix that is off by its precision has the same subspaces, and other vectors in them.
    noise = torch.randn(9, 7, dtype=torch.float64, generator=generator(1))
    moved = dense + 1e-9 * noise
    other = torch.linalg.svd(moved).U[:, 1:3]
    torch.testing.assert_close(other @ other.T, plane, rtol=0, atol=1e-7)
    assert float((other[:, 0] @ groups[1].left[:, 0]).abs()) < 0.999
    # Less precise, 2 and 1 are no longer told apart; zero is no direction.
    assert [group.size for group in factored(precision=0.005).directions()] == [4]
    assert [group.size for group in factored(values=(1.0, 0.5, 0.0, 0.0)).directions()] == [1, 1]
    rounded = attnlab.circuits(small().bfloat16())["0.0"].ov  # in which no direction is known
    assert [group.size for group in rounded.directions()] == [4]


@pytest.mark.parametrize(
    "config", [{}, {"norm_place": "post"}, {"tie_output": True}, {"tie_output": False}], ids=str
)
def test_copying_is_that_of_the_whole_matrix_of_tokens(config):
    model = small(**config)
    found = attnlab.circuits(model)
    for layer, circuit in ((0, found["0.1"]), (1, found["1.2"])):
        tokens = array(model.embedding.tokens.weight)
        weight = array(model.head.weight) if model.head is not None else tokens
        before, after = [], []
        if model.config.norm_place == "post":
            pairs = [(block.norm_attention, block.norm_feed_forward) for block in model.layers]
            norms = [norm for pair in pairs for norm in pair]
            before, after = norms[: 2 * layer], norms[2 * layer :]
        for norm in before:
            tokens = tokens @ norm_matrix(norm).T
        written = circuit.ov.dense().numpy()
        for norm in [*after, *([model.final_norm] if model.final_norm is not None else [])]:
            written = norm_matrix(norm) @ written
        values = np.linalg.eigvals(weight @ written @ tokens.T)
        assert circuit.copying == pytest.approx(values.real.sum() / np.abs(values).sum(), abs=1e-4)


@pytest.mark.parametrize("config", [{}, {"norm_place": "post"}, {"num_kv_heads": 2}], ids=str)
def test_composition_scores_are_those_of_dense_matrices(config):
    model = small(**config)
    found = attnlab.circuits(model)
    scores = found.compositions(samples=40)
    assert scores.heads == [f"{layer}.{head}" for layer in (0, 1) for head in range(4)]
    between = np.eye(16)
    if config.get("norm_place") == "post":
        block = model.layers[0]
        between = norm_matrix(block.norm_feed_forward) @ norm_matrix(block.norm_attention)
    for earlier in range(4):
        writes = between @ found[f"0.{earlier}"].ov.dense().numpy()
        for later in range(4):
            circuit = found[f"1.{later}"]
            ov, qk = circuit.ov.dense().numpy(), circuit.qk.dense().numpy()
            for kind, reads in {"Q": qk.T, "K": qk, "V": ov}.items():
                size = np.linalg.norm(reads) * np.linalg.norm(writes)
                score = float(scores.scores[kind][4 + later, earlier])
                assert score == pytest.approx(np.linalg.norm(reads @ writes) / size, abs=1e-5)
    assert scores.scores["Q"][:4].isnan().all()  # nothing comes before the first layer
    assert scores.scores["K"][:, 4:].isnan().all()


def test_chance_is_that_of_dense_random_matrices_of_the_same_spectrum():
    reads, writes = torch.tensor([[3.0, 1.0, 0.5]]), torch.tensor([[2.0, 1.0]])
    empty = torch.zeros(1, 12, 2, dtype=torch.float64)
    both = (compositions.SVD(empty, values.double(), empty) for values in (reads, writes))
    found = compositions._chance(*both, 400, 0).flatten()
    source = np.random.default_rng(0)
    scores = []
    for _ in range(400):
        one, other = (np.linalg.qr(source.normal(size=(12, 12)))[0] for _ in range(2))
        dense = np.diag(reads[0]) @ one[:3] @ other[:, :2] @ np.diag(writes[0])
        scores.append(np.linalg.norm(dense) / np.linalg.norm(reads) / np.linalg.norm(writes))
    for share in (0.025, 0.5, 0.975):
        assert float(found.quantile(share)) == pytest.approx(np.quantile(scores, share), abs=0.03)
    assert float(found.square().mean()) == pytest.approx(1 / 12, rel=0.1)


def test_a_head_that_reads_what_another_writes_is_far_above_chance_and_others_are_not():
    model = small(norm_place="none", d_model=64, num_heads=8)
    first, second = (layer.attention for layer in model.layers)
    with torch.no_grad():
        second.key.weight[8:16] = first.output.weight[:, 24:32].T
    found = attnlab.circuits(model).compositions(seed=1)
    (kind, earlier, later, score, _, high), *others = found.top(20)
    assert (kind, earlier, later) == ("K", "0.3", "1.1")
    assert score > 2 * high > 2 * max(each[3] - high for each in others)
    above = sum(int((found.scores[kind] > found.high[kind]).sum()) for kind in "QKV")
    assert above <= 20  # of 192, of which one in forty is by chance
    again = attnlab.circuits(model).compositions(seed=1)
    torch.testing.assert_close(found.high["Q"], again.high["Q"], rtol=0, atol=0, equal_nan=True)
    other = attnlab.circuits(model).compositions(seed=2)
    assert not torch.equal(found.high["Q"].nan_to_num(), other.high["Q"].nan_to_num())


def test_cross_attention_reads_what_the_encoder_writes_as_keys_and_values():
    found = attnlab.circuits(new_model("encoder-decoder", num_heads=2, num_layers=1))
    scores = found.compositions(samples=40)
    place = {name: index for index, name in enumerate(scores.heads)}
    cross, encoder, decoder = (place[name] for name in ("cross 0.1", "encoder 0.0", "decoder 0.0"))
    seen = {
        kind: [not scores.scores[kind][cross, each].isnan() for each in (encoder, decoder)]
        for kind in "QKV"
    }
    assert seen == {"Q": [False, True], "K": [True, False], "V": [True, False]}
    assert found["cross 0.1"].copying is None


def bend_queries(model):
    query = model.layers[1].attention.query
    plain = query.forward
    query.forward = lambda x: torch.tanh(plain(x))


def mix_positions(model):
    value = model.layers[1].attention.value
    plain = value.forward
    value.forward = lambda x: plain(x + x.roll(1, 1))


@pytest.mark.parametrize(
    ("fault", "words"), [(bend_queries, "not a matrix"), (mix_positions, "several positions")]
)
def test_what_is_no_matrix_is_refused(fault, words):
    model = small()
    fault(model)
    with pytest.raises(CouldNotRun, match=words):
        attnlab.circuits(model)


def test_what_has_no_such_matrices_is_refused():
    with pytest.raises(CouldNotRun, match="no site"):
        attnlab.circuits(tried("bloom").model)
    head = attnlab.SingleHead(attnlab.SingleHeadConfig())
    with pytest.raises(WrongUsage, match="no residual stream"):
        attnlab.circuits(head)
    with pytest.raises(WrongUsage, match="dropout"):
        attnlab.circuits(small(dropout=0.1).train())
    found = attnlab.circuits(small(), ["1"])
    assert [circuit.head for circuit in found] == ["1.0", "1.1", "1.2", "1.3"]
    with pytest.raises(WrongUsage, match=r"no head '0\.0'"):
        found["0.0"]
    with pytest.raises(WrongUsage, match="at least 40"):
        found.compositions(samples=3)


def test_circuits_are_shown_and_drawn_and_leave_the_model_as_it_is():
    model = small()
    plain = model(torch.tensor([[1, 2, 3]]))
    found = attnlab.circuits(model)
    title, columns, first, *_ = str(found).splitlines()
    assert title == "Circuits of 8 heads"
    assert columns.split()[:2] == ["head", "copying"]
    assert float(first.split()[1]) == pytest.approx(found["0.0"].copying, abs=0.005)
    scores = found.compositions(samples=40)
    assert "of 48 above chance, 1 expected" in str(scores)
    alone = attnlab.circuits(model, ["0"]).compositions(samples=40)
    assert str(alone) == "Compositions: none of these heads comes after another"
    tables = scores.number_tables()
    assert [len(table.values) for table in tables] == [8, 8, 8]
    assert torch.equal(model(torch.tensor([[1, 2, 3]])), plain)
    assert not any(module._forward_hooks for module in model.modules())
