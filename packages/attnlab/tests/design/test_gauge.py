import pytest
import torch

from attnlab.design import copy_first, gauge_change, identity, prove, score_table, unique
from attnlab.errors import WrongUsage
from attnlab.models.single_head import SingleHead


def random_change(size, seed=0):
    return torch.randn(
        size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("make", [identity, copy_first, unique])
def test_a_gauge_change_is_other_matrices_of_the_same_head(make):
    design = make()
    matrices = design.model().matrices()
    changed = gauge_change(matrices, random_change(matrices.Km.shape[1]))
    assert (changed.Km - matrices.Km).norm() > 0.5 * matrices.Km.norm()
    before = score_table(matrices, design.task).scores
    after = score_table(changed, design.task).scores
    torch.testing.assert_close(after, before, atol=1e-12, rtol=1e-12, equal_nan=True)
    proof = prove(SingleHead.from_matrices(*changed), design.task, tolerance=1e-3)
    assert proof.worst_error == pytest.approx(prove(design).worst_error, rel=1e-9)


def test_what_is_added_to_all_keys_of_a_query_does_not_show():
    design = identity()
    matrices = design.model().matrices()
    # Ones in a channel of every key: each query adds its own number to all of them.
    shifted = matrices._replace(
        Km=torch.cat((matrices.Km, torch.ones(3, 1)), 1),
        Qm=torch.cat((matrices.Qm, random_change(3)[:, :1]), 1),
    )
    scale = (4 / 3) ** 0.5  # one channel more, so another √d_qk
    torch.testing.assert_close(
        score_table(shifted, design.task).scores * scale, score_table(matrices, design.task).scores
    )


def test_the_table_of_identity_is_the_gap_less_its_mean():
    design = identity()
    table = score_table(design.model().matrices(), design.task)
    wanted = design.gap * (torch.eye(3, dtype=torch.float64) - 1 / 3)
    torch.testing.assert_close(table.scores, wanted)
    assert table.queries == table.keys == ("A", "B", "C")


def test_the_table_names_places_and_leaves_out_what_never_meets():
    table = score_table(copy_first().model().matrices(), copy_first().task)
    assert table.queries == table.keys
    assert table.keys[:5] == ("A1", "A2", "A3", "A4", "B1")
    a1, b1, a2 = (table.keys.index(name) for name in ("A1", "B1", "A2"))
    assert table.scores[a1, b1].isnan()
    assert table.scores[a2, b1] == table.scores[a2, a1] > table.scores[a2, a2]
    table = score_table(unique().model().matrices(), unique().task)
    assert table.keys == ("CLS", *table.queries)
    assert len(table.queries) == 12


def test_a_change_of_another_size_is_refused():
    with pytest.raises(WrongUsage, match=r"R must have shape \(3, 3\)"):
        gauge_change(identity().model().matrices(), torch.eye(4))
