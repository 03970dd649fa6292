"""Planted faults: the mistakes that block-wise summaries are prone to."""

import pytest
import torch

from attnlab.native import compiler_name
from tests.look.summaries import test_summarize as summaries
from tests.planting import fault_tests, faults_in, noticed_in_kernel, run_test
from tests.sampling import sampled

CHECKS = {
    "fits": summaries.test_many_row_blocks_and_ragged_cells_fit_together,
    "dead": summaries.test_a_query_that_may_look_at_nothing_gets_zeros,
    "ties": summaries.test_of_equal_weights_the_first_keys_are_named_first,
    "blocks": lambda _: run_test(
        summaries.test_blocks_in_which_nothing_can_be_seen_are_not_computed
    ),
}

IN_PYTHON = """
the diagonal block is not masked | summary_inputs | torch causal
- (distance <= self.left) & (distance >= -self.right)
+ distance <= self.left
the last key that a mask shows is cut off | row_blocks | torch padding
- int(seen[-1]) + 1
+ int(seen[-1])
the ragged last cell has the full count | row_blocks | torch fits
- .clamp(max=cell[1])
+ .clamp(min=cell[1], max=cell[1])
a tie is left to topk | summary | torch ties
- if bool(tied.any()):
+ if False:
top keys are counted from the block | summary | torch window
- keys + first_key
+ keys
blocks that nobody sees are computed | summary_inputs | torch blocks
- queries.stop + self.mask_offset + self.right
+ self.num_keys
"""

# In the sources of the compiled rows, put together; each takes a compilation.
COMPILED = """
the diagonal itself is blocked | native.attention | native causal
- distance >= -R(w.right)
+ distance > -R(w.right)
a tile of which only some can be seen is left out | native.attention | native boolean
- if (any && !all) return SOME;
+ if (any && !all) return NONE;
the ragged last cell is divided by the full count | native.attention | native fits
- mean[last] /= rest
+ mean[last] /= whole
of equal keys the last are listed | native.attention | native ties
- equal[lane]++ >= w.top
+ equal[lane]++ < GROUP
a dead row divides by its zero | native.attention | native dead
- bool is_dead = i >= rows || sums.total[i] == 0;
+ bool is_dead = i >= rows;
entropy forgets the mean score | native.attention | native cases
- log_total - sums.energy[i] / total
+ log_total
a tile is left out when its first query sees nothing | native.attention | native sparse
- (w.mask_query_step ? rows : 1)
+ 1
an added mask is not brought to base 2 | native.attention | native added
- R(bias * R(1.4426950408889634))
+ bias
"""


def run(check):
    """Run a check, or cases of one kind of mask."""
    way, what = check.split()
    if what in CHECKS:
        CHECKS[what](way)
    else:
        kind = None if what == "cases" else what
        summaries.check_cases(way, torch.float32, 1e-5, range(20), kind)


@pytest.mark.parametrize("fault", sampled(faults_in(COMPILED), 1), ids=lambda fault: fault.name)
def test_a_fault_planted_in_the_compiled_rows_shows(fault):
    if compiler_name() is None:
        pytest.skip("there is no C++ compiler here")
    with noticed_in_kernel(fault.old, fault.new):
        run(fault.check)


test_every_fault_has_its_place_in_the_code, test_a_fault_planted_in_python_shows = fault_tests(
    faults_in(IN_PYTHON, "look.summaries."), run
)
