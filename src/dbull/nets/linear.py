"""Linear layers in training by oneDNN, whose products are twice as fast as PyTorch's usual ones on some CPUs.

PyTorch multiplies float32 matrices by MKL, which does not use the wide registers of processors that are not
Intel's. oneDNN, which comes with PyTorch as well, does. The two differ by rounding only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _has_onednn() -> bool:
    """Whether this PyTorch has the product, an operation that it keeps for its own compiler."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


HAS_ONEDNN = _has_onednn()


def _times_transposed(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a b^T + bias."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    """x W^T + b; all three gradients by the same product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _times_transposed(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_x = _times_transposed(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        of_weight = _times_transposed(gradient.t().contiguous(), x.t()) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, gradient.sum(0) if ctx.needs_input_grad[2] else None


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b, by oneDNN where it can be."""
    if HAS_ONEDNN and len(x) and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32:
        product: Tensor = _Linear.apply(x, weight, bias)
        return product
    return F.linear(x, weight, bias)


def through(layers: nn.Module, x: Tensor) -> Tensor:
    """Return what layers in a row make of x; a network of another kind is asked as it is."""
    if not isinstance(layers, nn.Sequential):
        answer: Tensor = layers(x)
        return answer
    for layer in layers:
        x = linear(x, layer.weight, layer.bias) if isinstance(layer, nn.Linear) else layer(x)
    return x
