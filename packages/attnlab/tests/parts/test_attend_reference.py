"""`attend` against the NumPy float64 reference, on thousands of random problems and both paths."""

import collections

import pytest
import torch

from attnlab.parts.attend import attend
from tests import reference as ref
from tests.sampling import sampled

from .cases import HALVES, KINDS, as_tensor, random_case
from .closeness import assert_close, assert_scores_close

OUTPUT = {torch.float64: 1e-12, torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}
WEIGHTS = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-6, torch.bfloat16: 2e-6}
SCORES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-5, torch.bfloat16: 1e-5}
GRADIENT = {torch.float64: 1e-12, torch.float32: 2e-5}
CHUNKS, CASES_PER_CHUNK = 24, 90


def compare(case, expected, gradients, dtype, *, need_weights):
    query, key, value = case.tensors(dtype, grad=dtype in GRADIENT)
    mask = case.torch_mask(torch.float32 if dtype in HALVES else dtype)
    result = attend(query, key, value, mask, scale=case.scale, need_weights=need_weights)
    label = f"{str(dtype).removeprefix('torch.')} {'explicit' if need_weights else 'fused'}"
    assert result.output.dtype == dtype
    assert_close(result.output, expected.output, OUTPUT[dtype], f"{label} output")
    if need_weights:
        exact = torch.float32 if dtype in HALVES else dtype
        assert result.weights.dtype == result.scores.dtype == exact
        assert_close(result.weights, expected.weights, WEIGHTS[dtype], f"{label} weights")
        assert_scores_close(result.scores, expected.scores, SCORES[dtype], f"{label} scores")
    if dtype in GRADIENT:
        result.output.backward(as_tensor(case.grad_output, dtype))
        for name, ours, theirs in zip(
            ("query", "key", "value"), (query, key, value), gradients, strict=True
        ):
            assert_close(ours.grad, theirs, GRADIENT[dtype], f"{label} gradient of the {name}")


def check_cases(first, count, *, largest=65):
    """Compare cases; every fourth in half precision, the others in float32 or float64."""
    done = collections.Counter()
    for seed in range(first, first + count):
        half = seed % 4 == 3
        dtypes = (torch.float32, torch.float64)[: 1 + (seed % 4 == 0)]
        dtypes = (HALVES[seed // 4 % 2],) if half else dtypes
        case = random_case(seed, largest=largest, dtype=dtypes[0])
        expected = ref.attention(*case[:5])
        gradients = () if half else ref.attention_gradients(*case[:5], case.grad_output)
        for dtype in dtypes:
            for need_weights in (True, False):
                compare(case, expected, gradients, dtype, need_weights=need_weights)
            done[str(dtype)] += 1
        done["cases"] += 1
        done[case.kind] += 1
        done["empty batches"] += case.query.size == 0
        done["dead rows seen"] += bool((~case.visible).all(-1).any())
        done["lengths differ"] += case.query.shape[-2] != case.key.shape[-2]
    return done


@pytest.mark.parametrize("chunk", sampled(range(CHUNKS), 1))
def test_attention_and_its_gradients_agree_with_the_reference_on_random_problems(chunk):
    done = check_cases(chunk * CASES_PER_CHUNK, CASES_PER_CHUNK)
    assert done["cases"] == CASES_PER_CHUNK
    assert min(done[kind] for kind in KINDS) >= CASES_PER_CHUNK // len(KINDS)
    assert min(done[str(dtype)] for dtype in OUTPUT) >= 10
    assert min(done["empty batches"], done["dead rows seen"], done["lengths differ"]) >= 2


def test_the_cases_span_the_sizes_they_promise():
    cases = [random_case(seed) for seed in range(300)]
    lengths = {length for case in cases for length in case.visible.shape[-2:]}
    assert min(lengths) == 1
    assert max(lengths) >= 60
    assert {case.query.shape[-1] % 2 for case in cases} == {0, 1}
    assert {case.query.shape[0] for case in cases if case.query.ndim == 4} == {0, 1, 2, 3, 4}
    scales = {"number" if isinstance(case.scale, float) else case.scale for case in cases}
    assert scales == {None, False, "number"}
    made = [tensor for case in cases for tensor in case.tensors(torch.float32)]
    assert {each.is_contiguous() for each in made if min(each.shape) > 1} == {True, False}
