"""Matrix products, `y = x Wᵀ + b`, by the faster of torch's two CPU paths.

On some processors the MKL that torch calls does not use the widest vector units, while the oneDNN
in the same wheel does. A probe of some milliseconds compares the two once a machine, and remembers
(so that two runs on one machine always compute alike). `ATTNLAB_MATRIX_PATH=default` (or
`use_matrix_path("default")`) switches all of it off, `onednn` forces it, `auto` is the rule.

Only large float32 products on a CPU ever leave the default path; small ones would pay more for the
call than they gain, and gradients of any order stay available because the backward pass is made of
the same function.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from attnlab.parts.probes import ComputePath, Probe, compared, recalled, remember

MatrixPath = Literal["auto", "default", "onednn"]

_SMALLEST_FLOPS = 5e7  # below this the call costs more than the faster product saves
# the share of the default's time before the other is taken for products that must be turned first
_WORTH_TURNING = 0.8
_MEMORY = "matrix-path"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply by a weight matrix: (..., in) , (out, in), (out) -> (..., out)."""
    is_small = x.numel() * weight.shape[0] * 2 < _SMALLEST_FLOPS
    if is_small or not _takes_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    # The op itself has no derivative: a frozen weight with a trainable bias must not slip past.
    if torch.is_grad_enabled() and _any_requires_grad(x, weight, bias):
        result: Tensor = _OneDNNLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return _onednn(x, weight, bias)


def _takes_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Is the other path possible for this large product, and the quicker one?"""
    if not (x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"):
        return False
    if x.shape[-1] != weight.shape[-1]:  # F.linear explains what is wrong
        return False
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if torch.is_autocast_enabled("cpu") or _has_tangent(x, weight, bias):
        return False
    return _PATH.is_on()


def _any_requires_grad(*tensors: Tensor | None) -> bool:
    return any(t is not None and t.requires_grad for t in tensors)


class Linear(nn.Module):
    """A weight (out, in) and an optional bias (out), with PyTorch's names and initial values.

    Its parameters have the names and shapes of `torch.nn.Linear`, so weights can be copied either
    way.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -(in_features**-0.5), in_features**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """What printing the module shows of it."""
        return f"{self.in_features} -> {self.out_features}, bias={self.bias is not None}"


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        flat = grad.reshape(-1, grad.shape[-1])
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = linear(grad, weight.t())
        if ctx.needs_input_grad[1]:
            grad_weight = _weight_gradient(flat, x.reshape(-1, x.shape[-1]))
        if ctx.needs_input_grad[2]:
            grad_bias = flat.sum(0)
        return grad_x, grad_weight, grad_bias


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """(rows, out), (rows, in) -> (out, in). Both sides lie the wrong way round; only a clear gain
    pays for turning."""
    ratio = matrix_path_probe().ratio
    if ratio is not None and ratio < _WORTH_TURNING:
        return linear(grad.t(), x.t())
    return grad.t() @ x


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # The op behind torch's own compiled CPU code; private, hence probed and checked before it is
    # ever used.
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


def _has_tangent(*tensors: Tensor | None) -> bool:
    """Say whether forward-mode differentiation is going on here, which the op would silently
    end."""
    return any(
        t is not None and forward_ad.unpack_dual(t).tangent is not None  # type: ignore[no-untyped-call]
        for t in tensors
    )


def _measured(fresh: bool) -> Probe:
    known = recalled(_MEMORY, fresh)
    if known is not None:
        return known
    source = torch.Generator().manual_seed(0)
    x = torch.randn(512, 512, generator=source)
    weight = torch.randn(512, 512, generator=source)
    try:
        with torch.no_grad():
            expected = F.linear(x, weight)
            error = float((_onednn(x, weight, None) - expected).abs().max() / expected.abs().max())
            if not error < 1e-5:
                return Probe(None, False, f"oneDNN's result is off by {error:.1e}")
            ratio = compared(
                lambda: F.linear(x, weight), lambda: _onednn(x, weight, None), rounds=25
            )
    except (AttributeError, RuntimeError) as error:
        return Probe(None, False, f"oneDNN's linear is not in this torch ({type(error).__name__})")
    return remember(_MEMORY, ratio)


_PATH = ComputePath("matrix", "onednn", _measured)
use_matrix_path = _PATH.use
matrix_path_probe = _PATH.probe
matrix_path_in_use = _PATH.in_use
