"""Root-mean-square normalization, as in LLaMA."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import eps_mistakes, power_mistake
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # RMS norm
#
# Newer models leave half of layer normalization away: no mean is subtracted, no bias is added. Each
# row is divided by its root mean square, and each column has a learned scale. It works as well and
# costs less.
#
# **Write** `normalize_rms(x, weight, eps=1e-6)`, which returns
#
# weight · x / √(mean of x² over the last axis + eps)
#
# | | shape |
# | --- | --- |
# | `x` | (…, width) |
# | `weight` | (width,) |
# | answer | (…, width) |
#
# * The answer has the dtype of `x`; `weight` has the same.
# * In float16 the square of 300 is infinite. So x is squared in float32 at least, and only the
#   answer is brought back. Float64 stays float64 throughout, or is at least right to 5 digits.
# * eps stands inside the root. A row of zeros gives zeros.
# * The inputs stay as they are.
#
# Do not call PyTorch's own normalizations.

# %%
import torch


def normalize_rms(x, weight, eps=1e-6):
    """Divide each row by its root mean square, and scale its columns."""
    # >>> solution
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    square = (wide * wide).mean(dim=-1, keepdim=True)
    normal = wide / torch.sqrt(square + eps)
    return (weight * normal).to(x.dtype)
    # <<< solution


# %% [hints]
# 1. What is the root mean square of the row 3, 4, 0, 0? And what is left when each number is
#    divided by it?
# 2. A mean over the last axis with `keepdim=True` meets every column again.
# 3. x → float32 if it is narrower → mean of squares (…, 1) → add eps → root → divide → scale.
# 4. Keep the dtype of x aside, compute in a wide one, and bring the scaled rows back at the end.


# %% [mistakes]
# ## mean taken away: The mean is subtracted first. That is layer normalization.
# -     wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
# +     wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
# +     wide = wide - wide.mean(dim=-1, keepdim=True)
# ## weight plus one: 1 is added to the weight, as Gemma does. Here the weight is the scale itself.
# - weight * normal
# + (1 + weight) * normal
# ## overflow: In half precision the squares overflow, and large rows become 0. Square in float32.
# - x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
# + x


# %% [course]
def case(random, shape, spread=1.0, center=5.0, eps=None, dtype=np.float64, **more):
    """Sample x and weight."""
    x = (center + random.normal(size=shape) * spread).astype(dtype)
    weight = (random.normal(size=shape[-1]) + 0.5).astype(dtype)
    settings = {} if eps is None else {"eps": eps}
    args = (T.from_numpy(x), T.from_numpy(weight))
    return Case("normalize_rms", args, settings, **{"tolerance": 1e-5, **more})


def values(random):
    """Rows of ordinary size."""
    yield case(random, (1, 1, 2))
    yield case(random, (2, 3, 5), 2.0)


def axes(random):
    """One row alone, a width of 1, four axes."""
    yield case(random, (5,), words="with one row alone")
    yield case(random, (3, 1), words="with width 1")
    yield case(random, (2, 3, 4, 7), words="with four axes")


def epsilon(random):
    """Rows whose mean square is small beside eps, and another eps."""
    yield case(random, (2, 5), 0.001, 0.0, words="with numbers of about 0.001")
    yield case(random, (2, 5), eps=0.5, words="with eps 0.5")


def zeros(random):
    """Rows of zeros."""
    yield case(random, (2, 5), 0.0, 0.0, words="with rows of zeros")


def single(random):
    """Single precision."""
    yield case(random, (2, 3, 5), dtype=np.float32, tolerance=1e-4, words="in float32")


def half(random):
    """Half precision, with numbers whose squares overflow."""
    more = {
        "dtype": np.float16,
        "tolerance": 5e-3,
        "words": "in float16, with numbers of about 900",
    }
    yield case(random, (2, 3, 5), 100.0, 900.0, **more)


EXERCISE = Exercise(
    "RMS norm",
    level=2,
    minutes=15,
    needs=("layer_norm",),
    checks=(
        Check("values", "normalizes and scales each row", values, points=3),
        Check("axes", "takes any number of axes", axes),
        Check("single", "keeps single precision", single),
        Check("eps", "has eps inside the root, and takes another", epsilon),
        Check("zeros", "gives zeros for rows of zeros", zeros, side=True),
        Check("half", "does not overflow in half precision", half, points=2),
        inputs_check(values),
    ),
    mistakes=(
        *eps_mistakes("square", "eps"),
        *power_mistake("/ torch.sqrt(square + eps)", "(square + eps)"),
    ),
    banned=("RMSNorm", "rms_norm", "LayerNorm", "layer_norm"),
)
