"""Sites by module path, beside torch hooks written by hand in the same models."""

from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.edits import AddVector, MeanSite, ScaleSite, ZeroSite
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.attach import attach
from attnlab.pretrained.probe import probe_inputs
from attnlab.sites import site_names
from tests.planting import noticed
from tests.pretrained.families import FAMILIES, Anatomy, each_of
from tests.pretrained.trying import changed_at

pytest.importorskip("transformers")

IDS = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 4]])
PATHS = {
    "gpt2": ["transformer.h[1].mlp.c_fc", "transformer.h.0.attn.c_attn", "lm_head"],
    "bert": ["encoder.layer[1].intermediate", "encoder.layer[0].attention.self", "pooler"],
    "t5": [
        "encoder.block[0].layer[1].DenseReluDense.wo",
        "decoder.block[1].layer[1].EncDecAttention.q",
        "decoder.block[0]",
    ],
    "torch": ["layers.1.linear1", "layers.0.norm2", "norm"],
}


def opened(kind):
    """Open a tiny random model, and return it with two inputs of four tokens."""
    from tests.pretrained.speaking import made

    if kind == "torch":  # reads vectors, length first
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0)
        foreign = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(32), enable_nested_tensor=False)
        vectors = torch.randn(4, 2, 32)
        return attach(foreign.eval(), example={"src": torch.randn(5, 3, 32)}), {"src": vectors}
    inputs = {"input_ids": IDS}
    if kind == "t5":
        inputs["decoder_input_ids"] = IDS[:, :3]
    return attach(made(kind)[0]), inputs


@contextmanager
def by_hand(model, path, change=lambda value: value):
    """Keep the first tensor that a module returns, and put a changed one in its place."""
    seen: list[Tensor] = []

    def keep(value, _):
        seen.append(value.detach().clone())
        new = change(value)
        return None if new is value else new

    module = Anatomy(path.replace("[", ".").replace("]", ""))
    with changed_at(model.foreign, module, "out ", keep):
        yield seen


def run(model, inputs):
    with torch.no_grad():
        return model(**inputs)


def batch_first(kind, value):
    return value.transpose(0, 1) if kind == "torch" else value


@pytest.mark.parametrize("kind", PATHS)
def test_a_site_shows_and_changes_what_a_hook_by_hand_does(kind):
    model, inputs = opened(kind)
    for path in PATHS[kind]:
        check_site(kind, path, model, inputs)


def check_site(kind, path, model, inputs):
    plain = run(model, inputs)
    site = model.add_site(path)
    with attnlab.record(model, site) as recording:
        assert torch.equal(run(model, inputs), plain)
    with by_hand(model, path) as seen:
        run(model, inputs)
    assert len(seen) == 1
    assert torch.equal(recording[site], batch_first(kind, seen[0]))

    def last_of_row_one(value):
        new = batch_first(kind, value.clone())
        new[1, -1] *= 3.0
        return batch_first(kind, new)

    targets = {"row": 1} if path == "pooler" else {"row": 1, "query": -1}
    change = (lambda value: value * torch.tensor([[1.0], [3.0]])) if path == "pooler" else None
    with by_hand(model, path, change or last_of_row_one):
        expected = run(model, inputs)
    with attnlab.edit(model, ScaleSite(site=site, factor=3.0, **targets)) as certificate:
        assert torch.equal(run(model, inputs), expected)
    before = recording[site][1] if path == "pooler" else recording[site][1, -1]
    assert certificate.holds
    assert certificate.edits[0].values == before.numel()
    assert certificate.edits[0].changed == int((before != 0).sum())
    assert torch.equal(run(model, inputs), plain)


def test_all_edits_of_sites_effects_and_patches_take_them():
    model, inputs = opened("gpt2")
    path = "transformer.h[1].mlp.c_fc"
    site = model.add_site(path)
    recording = attnlab.record(model, IDS, site)
    vector = torch.randn(128)
    cases: list[tuple[Any, Callable[[Tensor], Tensor]]] = [
        (ZeroSite(site=site), torch.zeros_like),
        (AddVector(site=site, vector=vector, scale=2.0), lambda value: value + 2.0 * vector),
        (
            MeanSite(site=site, over="rows"),
            lambda value: value.mean(0, keepdim=True).expand_as(value),
        ),
        (
            attnlab.Patch(site=site, recording=recording.select(rows=1), row=0),
            lambda value: value[[1, 1]],
        ),
    ]
    for edit, change in cases:
        with by_hand(model, path, change):
            expected = run(model, inputs)
        with attnlab.edit(model, edit) as certificate:
            assert torch.equal(run(model, inputs), expected)
        assert certificate.holds
    effect = attnlab.effect(model, IDS, ZeroSite(site=site), target=7)
    assert "->" in str(effect)
    corrupted = IDS.flip(1)
    for name in (site, model.add_site("lm_head")):
        patches = attnlab.patch_all(model, IDS, corrupted, name, target=7, each_position=False)
        clean = attnlab.record(model, IDS, name)
        with torch.no_grad(), attnlab.edit(model, attnlab.Patch(site=name, recording=clean)):
            logits = model(corrupted)[:, -1]
        assert patches.after.shape == (1, 2)
        if name != site:
            assert float(patches.shares) == pytest.approx(1.0)
        rivals = [others for _, others in patches.answers]
        assert len(rivals) == len(logits)
        wrong = torch.tensor(list(map(int, rivals)))
        measured = logits[:, 7] - logits[range(2), wrong]
        assert torch.allclose(patches.after[0], measured.double(), atol=1e-6)


def test_tokens_steps_and_a_cache():
    model, _ = opened("gpt2")
    path = "transformer.h.0.mlp"
    site = model.add_site(path)
    options: dict[str, Any] = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    steps = [0]

    def third_pass(value):
        steps[0] += 1
        return value + 5.0 if steps[0] == 3 else value

    with by_hand(model, path, third_pass):
        expected = model.foreign.generate(IDS[:1], **options)
    vector = torch.full((32,), 5.0)
    with attnlab.edit(model, AddVector(site=site, vector=vector, step=3)) as certificate:
        assert torch.equal(model.foreign.generate(IDS[:1], **options), expected)
    assert certificate.holds
    assert certificate.edits[0].values == 32


def test_an_encoder_that_is_called_by_itself_and_twice():
    model, inputs = opened("t5")
    site = model.add_site("encoder.block[0].layer[1].DenseReluDense.wo")
    assert site == "encoder.module.encoder.block.0.layer.1.DenseReluDense.wo.result"
    with attnlab.record(model, site) as recording:
        for _ in range(2):
            model.foreign.generate(IDS, max_new_tokens=2, do_sample=False)
    assert recording.tokens(site).query == list(map(str, IDS[0].tolist()))
    with attnlab.edit(model, ZeroSite(site=site, query=1)) as certificate:
        run(model, inputs)
    assert certificate.holds
    assert certificate.edits[0].values == 2 * 32


def test_modules_that_are_no_site():
    gpt2, _ = opened("gpt2")
    t5, _ = opened("t5")
    twice = attach(Twice().eval(), example={"src": torch.full((2, 5, 32), 200.0)})
    cases = [
        (gpt2, "transformer.h", "returns no tensor"),
        (gpt2, "transformer.h[7].mlp", r"no module .*; did you mean 'transformer.h\.\d\.mlp'"),
        (gpt2, "transformer.wte", "runs before the first block.*'embedding'"),
        (gpt2, "", "no module ''"),
        (t5, "shared", "returns no tensor"),
        (twice, "last", "called several times in one pass"),
    ]
    for model, path, words in cases:
        with pytest.raises((WrongUsage, CouldNotRun), match=words):
            model.add_site(path)
        assert not [name for name in site_names(model) if name.endswith("result")]
    with attnlab.record(gpt2, "logits"), pytest.raises(WrongUsage, match="before a recording"):
        gpt2.add_site("lm_head")


def check_pattern() -> None:
    model, inputs = opened("gpt2")
    sites = model.add_site("transformer.h[*].mlp.*")
    paths = [f"transformer.h.{layer}.mlp.{name}" for layer in (0, 1) for name in MLP]
    assert list(sites.names) == [f"module.{path}.result" for path in paths]
    assert not sites.refused
    assert f"'{sites}': {len(paths)} sites" in repr(sites)
    with attnlab.record(model, sites) as recording:
        run(model, inputs)
    assert set(recording) == set(sites.names)
    with attnlab.edit(model, ZeroSite(site=sites)) as certificate:
        run(model, inputs)
    assert certificate.holds


MLP = ("c_fc", "c_proj", "act", "dropout")


def test_a_pattern_exposes_all_modules_that_match() -> None:
    check_pattern()
    module = "pretrained.module_sites"
    with noticed(module, "places = fnmatch.filter(known, dotted)", "places = [known[-1]]"):
        check_pattern()


def test_modules_of_a_pattern_that_are_no_site_are_refused_by_name() -> None:
    t5, _ = opened("t5")
    sites = t5.add_site("*.layer[0]*")  # of both stacks; lists of modules are called by none
    assert str(sites).startswith("*.module.")
    assert {name.partition(".")[0] for name in sites.names} == {"encoder", "decoder"}
    gpt2, _ = opened("gpt2")
    some = gpt2.add_site("transformer.*")
    assert "transformer.h" in some.refused
    assert "runs before the first block" in some.refused["transformer.wte"]
    assert "other modules refused, as" in repr(some)
    assert {name for name in site_names(gpt2) if name.endswith("result")} == set(some.names)
    for pattern, words in (("nothing.*", "no module of"), ("transformer.w*", "before the first")):
        with pytest.raises(WrongUsage, match=words):
            opened("gpt2")[0].add_site(pattern)


class Twice(nn.Module):
    """A feed-forward part that is called once more where its input is large."""

    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.last = nn.Linear(32, 32)

    def forward(self, src):
        x = self.last(self.inner(src))
        return self.last(x) if float(src.detach().abs().max()) > 100.0 else x


def test_a_second_call_is_refused():
    model = attach(Twice().eval(), example={"src": torch.randn(2, 5, 32)})
    site = model.add_site("last")
    attnlab.record(model, torch.randn(2, 5, 32), site)
    with pytest.raises(CouldNotRun, match="last is called several times in one pass"):
        attnlab.record(model, torch.full((2, 5, 32), 200.0), site)


def test_the_error_for_a_modules_path_says_how_to_expose_it():
    model, _ = opened("gpt2")
    advice = r"model\.add_site\('transformer\.h\.1\.mlp\.c_fc'\)"
    for path in ("transformer.h[1].mlp.c_fc", "transformer.h.1.mlp.c_fc.output"):
        with pytest.raises(WrongUsage, match=advice):
            attnlab.record(model, IDS, path)
        with pytest.raises(WrongUsage, match=advice):
            attnlab.record(model, path)
        with pytest.raises(WrongUsage, match=advice):
            attnlab.effect(model, IDS, ZeroSite(site=path))


def test_rows_and_positions_of_other_axes_are_refused():
    cases = [("bert", "pooler"), ("t5", "decoder.block[1].layer[1].EncDecAttention.v")]
    for kind, path in cases:
        model, inputs = opened(kind)
        edit = ZeroSite(site=model.add_site(path), query=1)
        with (
            pytest.raises(WrongUsage, match="leave row= and query= out"),
            attnlab.edit(model, edit),
        ):
            run(model, inputs)


def test_planted_faults_are_seen():
    """The other element of a tuple, a value that is not put back, a wrong module, another call."""
    module = "pretrained.module_sites"
    put = 'return with_value(output, visit_stream(self, "result", value, form), value)'
    faults = [
        ("t5", "decoder.block[0]", "value = first_tensor(output)", "value = output[-1]"),
        (
            "t5",
            "decoder.block[0]",
            put,
            put.replace("with_value(output, ", "(").replace(", value)", ", output)[1]"),
        ),
        ("gpt2", "transformer.h[1].mlp.c_fc", 'r".\\1", path)', 'r".0", path)'),
        ("torch", "layers.1.linear1", "form = self.stream if", "form = 'batch first' if"),
    ]
    for kind, path, snippet, fault in faults:
        with noticed(module, snippet, fault):
            check_site(kind, path, *opened(kind))
    snippet = "if self.is_tried and self.place in state.results.setdefault(self.stack, set()):"
    with noticed(module, snippet, "if False:"):
        test_a_second_call_is_refused()


@each_of(["opt", "mixtral", "bart", "whisper", "swin", "clip"], ["opt"])
def test_every_module_of_a_family_shows_what_it_returns(name):
    foreign = FAMILIES[name].build()
    model, inputs = attach(foreign), probe_inputs(foreign)
    plain = run(model, inputs)
    sites: dict[str, str] = {}
    for path, _ in foreign.named_modules():
        with suppress(WrongUsage, CouldNotRun):
            sites[path] = model.add_site(path)
    with ExitStack() as stack:
        seen = {path: stack.enter_context(by_hand(model, path)) for path in sites}
        run(model, inputs)
    with attnlab.record(model, list(sites.values())) as recording:
        assert torch.equal(run(model, inputs), plain)
    assert len(sites) >= 25
    for path, site in sites.items():
        assert torch.equal(recording[site], seen[path][0]), path
