import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import attnlab
from attnlab.errors import WrongUsage
from attnlab.models.single_head import SingleHead, SingleHeadConfig
from attnlab.parts import numpy_transformer
from attnlab.parts.numpy_transformer import NumpyTransformer


@pytest.mark.parametrize("has_positions", [False, True])
def test_the_numpy_and_the_pytorch_head_agree_on_random_weights_at_every_length(has_positions):
    source = np.random.default_rng(0)
    largest = 0.0
    for _ in range(12):
        input_dim, qk_dim, v_dim, pos_dim, longest = (
            int(size) for size in source.integers(1, 10, 5)
        )
        width = input_dim + (pos_dim if has_positions else 0)
        matrices = [source.normal(size=(width, size)) for size in (qk_dim, qk_dim, v_dim)]
        pos = source.normal(size=(longest, pos_dim)) if has_positions else None
        reference = NumpyTransformer(*matrices, pos)
        model = SingleHead.from_matrices(*matrices, pos)
        for length in range(1, longest + 1):
            x = source.normal(size=(length, input_dim))
            with torch.no_grad():
                found = model(torch.from_numpy(x).unsqueeze(0))
            panels = reference.panels(x)
            largest = max(
                largest,
                abs(found.output[0].numpy() - panels.output).max(),
                abs(found.weights[0, 0].numpy() - panels.attention).max(),
            )
    assert largest <= 1e-12


def test_a_reference_whose_softmax_is_a_little_warm_is_caught(monkeypatch):
    cold = numpy_transformer.softmax
    monkeypatch.setattr(numpy_transformer, "softmax", lambda scores: cold(scores * (1 - 1e-9)))
    with pytest.raises(AssertionError):
        test_the_numpy_and_the_pytorch_head_agree_on_random_weights_at_every_length(True)


@pytest.mark.parametrize(
    "config",
    [
        SingleHeadConfig(),
        SingleHeadConfig(input_dim=4, qk_dim=8, v_dim=1, pos_dim=4, max_seq_len=5),
        SingleHeadConfig(pos_dim=2, max_seq_len=3, learned_positions=True),
    ],
)
def test_a_head_rebuilt_from_its_matrices_is_the_same_head(config, tmp_path):
    model = SingleHead(config)
    again = SingleHead.from_matrices(
        *model.matrices(), learned_positions=config.learned_positions, dtype=torch.float32
    )
    assert {name: value.tolist() for name, value in again.state_dict().items()} == {
        name: value.tolist() for name, value in model.state_dict().items()
    }
    if config.pos_dim is not None:
        assert again.config == config
    attnlab.save_model(again, tmp_path)
    assert attnlab.load(tmp_path).matrices().Km.tolist() == model.matrices().Km.tolist()


def test_matrices_are_transposes_and_copies():
    model = SingleHead.from_matrices([[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9], [10]])
    assert model.key.weight.tolist() == [[1, 3], [2, 4]]
    model.matrices().Km.zero_()
    assert_array_equal(model.matrices().Km, [[1, 2], [3, 4]])


def test_fixed_positions_may_be_any_table_and_are_kept(tmp_path):
    pos = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    model = SingleHead.from_matrices(np.ones((5, 2)), np.ones((5, 2)), np.ones((5, 1)), pos)
    attnlab.save_model(model, tmp_path)
    assert attnlab.load(tmp_path).matrices().pos.tolist() == pos
    assert "positions.weight" not in dict(model.named_parameters())


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(WrongUsage, match="Km and Qm must have one shape"):
        SingleHead.from_matrices([[1.0]], [[1.0, 2.0]], [[1.0]])
    with pytest.raises(WrongUsage, match="this head has 2 positions; got an input of length 3"):
        SingleHead.from_matrices(np.ones((3, 1)), np.ones((3, 1)), np.ones((3, 1)), np.eye(2))(
            torch.zeros(1, 3, 1, dtype=torch.float64)
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_head_is_rebuilt_from_matrices_of_any_dtype_and_with_gradient(dtype):
    matrix = torch.ones(2, 2, dtype=dtype, requires_grad=True)
    assert_array_equal(
        SingleHead.from_matrices(matrix, matrix, matrix).matrices().Km, np.ones((2, 2))
    )


def by_hand(kind):
    return kind([[6.0, 0.0], [0.0, 6.0]], [[6.0, 0.0], [0.0, 6.0]], [[1.0], [-1.0]])


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.eye(2)[None], r"got x in float32\. Give x\.to\(torch\.float64\)"),
        (torch.ones(1, 2, 2, dtype=torch.int64), "computes in float64; got x in int64"),
        (torch.eye(2).double(), r"got \(2, 2\); a sequence alone needs a batch axis"),
        (np.eye(2)[None], r"got a ndarray\. Convert it with torch\.as_tensor"),
    ],
)
def test_a_head_made_by_hand_says_what_it_wants(x, sentence):
    with pytest.raises(WrongUsage, match=sentence):
        by_hand(SingleHead.from_matrices)(x)


@pytest.mark.parametrize(
    "x", [torch.eye(2), torch.eye(2).bfloat16(), torch.eye(2).requires_grad_(), np.eye(2)]
)
def test_in_numpy_a_head_takes_one_sequence_without_a_batch_axis(x):
    head = by_hand(NumpyTransformer)
    assert_array_equal(head(x).round(6), [[1.0], [-1.0]])
    with pytest.raises(WrongUsage, match=r"got \(1, 2, 2\); .* without a batch axis"):
        head(x[None])
