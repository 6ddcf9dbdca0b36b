"""Adam (Kingma & Ba 2015) over PyTorch's own fused step, without PyTorch's compiler.

The first use of any `torch.optim.Optimizer` imports the compiler, `torch._dynamo`, and with it hundreds of
modules: that takes as long as learning a small arrival. The step, `torch.optim.adam.adam`, needs none of it.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.adam import adam

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # the usual ones


class Adam:
    """Moves parameters down their gradients, each by a step of about `learning_rate`."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.parameters = list(parameters)
        self._means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._steps = [torch.zeros((), device=parameter.device) for parameter in self.parameters]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        if not moved:
            return
        adam(
            [self.parameters[i] for i in moved],
            [self.parameters[i].grad for i in moved],  # type: ignore[misc]
            [self._means[i] for i in moved],
            [self._squares[i] for i in moved],
            [],
            [self._steps[i] for i in moved],
            fused=True,
            amsgrad=False,
            beta1=BETA_1,
            beta2=BETA_2,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )
