"""The worked findings: what they measure is right on cases made by hand; with the wheels they run,
on a small sample.

The wheels are looked for in the folder that ATTNLAB_WHEELS names.
"""

import importlib
import os
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
WHEELS = os.environ.get("ATTNLAB_WHEELS")

pytest.importorskip("transformers")


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def test_numbers_are_taken_off_a_reaction_as_the_model_reads_it(example):
    atoms = example("atoms_of_a_reaction")
    found = atoms.read(
        {"name": "", "kind": "", "reaction": "[CH3:1][OH:2].[N-:3]=[nH:4].Br>>[CH3:1][O-:2][Na+]"}
    )
    assert "".join(found.tokens[1:-1]) == "CO.[N-]=[nH].Br>>C[O-][Na+]"
    assert [found.tokens[place] for place in found.atoms] == ["C", "[O-]"]
    assert [found.tokens[place] for place in found.sources] == ["C", "O", "[N-]", "[nH]", "Br"]
    assert found.right.tolist() == [
        [True, False, False, False, False],
        [False, True, False, False, False],
    ]


def test_every_atom_of_every_textbook_product_has_a_source_of_its_element(example):
    atoms = example("atoms_of_a_reaction")
    found = atoms.reactions()
    assert len(found) >= 40
    assert len({each.kind for each in found}) >= 8
    for each in found:
        product = [
            place
            for place in range(each.arrow + 1, len(each.tokens) - 1)
            if atoms._ATOM.fullmatch(each.tokens[place])
        ]
        assert product == each.atoms, each.name
        element = [token.strip("[]+-").replace("H", "").lower() for token in each.tokens]
        for row, place in enumerate(each.atoms):
            sources = [each.sources[index] for index in each.right[row].nonzero()[:, 0].tolist()]
            assert sources, each.name
            assert {element[source] for source in sources} == {element[place]}, each.name


def test_a_head_at_the_sources_has_all_marks_and_one_elsewhere_none(
    example,
):
    atoms = example("atoms_of_a_reaction")
    reaction = atoms.reactions(1)[0]
    length = len(reaction.tokens)
    looks = torch.zeros(1, 2, len(reaction.tokens), len(reaction.tokens))
    for row, place in enumerate(reaction.atoms):
        right, wrong = (
            each.nonzero()[0, 0] for each in (reaction.right[row], ~reaction.right[row])
        )
        looks[0, 0, place, reaction.sources[right]] = 1.0
        looks[0, 1, place, reaction.sources[wrong]] = 1.0
    assert looks.shape[-1] == length
    found = atoms.marks(atoms.pointed(looks, reaction), reaction)[0, 0]
    assert found[0].all()
    assert not found[1].any()


def test_ranks_and_their_correlation_are_the_textbook_ones(example):
    findings = example("findings")
    one = torch.tensor([3.0, 1.0, 2.0, 2.0])
    assert findings.ranks(one).tolist() == [3.0, 0.0, 1.5, 1.5]
    assert float(findings.spearman(one, one)) == pytest.approx(1.0)
    assert float(findings.spearman(one, -one)) == pytest.approx(-1.0)
    assert float(
        findings.spearman(torch.arange(5.0), torch.tensor([1.0, 0.0, 3.0, 2.0, 4.0]))
    ) == pytest.approx(0.8)


def test_tokens_said_twice_are_said_twice_and_only_the_second_time_counts(example):
    induction = example("induction_heads")
    told = induction.repeats(100, 3, 0)
    half = induction.HALF
    assert torch.equal(told.ids[:, 1 : 1 + half], told.ids[:, 1 + half :])
    labels = told.metric.target
    assert labels.shape == (3, half)
    assert torch.equal(labels[:, :-1], told.ids[:, 2 + half :])
    assert bool((labels[:, -1] == -100).all())


def test_the_margin_is_the_partner_less_the_strangers(example):
    similarity = example("sentence_similarity")
    hidden = torch.eye(4)[[0, 0, 1, 1]].unsqueeze(1)  # partners alike, strangers at right angles
    real = torch.ones(4, 1, dtype=torch.bool)
    assert similarity.margins(real)(hidden).tolist() == pytest.approx([1.0] * 4)
    assert similarity.margins(real)(hidden[[0, 2, 1, 3]]).tolist() == pytest.approx([-0.5] * 4)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    if WHEELS is None or not Path(WHEELS).is_dir():
        pytest.skip("ATTNLAB_WHEELS names no folder with the wheels of the small models")
    return tmp_path_factory.mktemp("models")


def run(example, name, models, folder, *more):
    report = example(name).main(
        ["--models", str(models), "--wheels", WHEELS, "--out", str(folder / name), *more]
    )
    assert (folder / name / "report.html").stat().st_size > 20_000
    assert (folder / "index.html").exists()
    return {claim.name: claim.passed for claim in report.claims}


def test_the_atoms_of_the_amide_coupling_are_found(example, models, tmp_path):
    found = run(example, "atoms_of_a_reaction", models, tmp_path, "--quick")
    assert found["the-example"]
    assert found["no-other-number"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["atoms_of_a_reaction", "induction_heads", "indirect_object", "sentence_similarity"]
)
def test_every_finding_holds_what_it_claims(example, models, tmp_path, name):
    assert all(run(example, name, models, tmp_path).values())
