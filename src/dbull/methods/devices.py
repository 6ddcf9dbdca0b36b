"""Where networks are: a device by name, if PyTorch has it here."""

from __future__ import annotations

import warnings

import torch


def check_device(device: str | torch.device) -> None:
    """Refuse a device that this PyTorch does not know or have."""
    reason = _missing(device)
    if reason is not None:
        raise ValueError(
            f"device must be one that PyTorch has here, such as 'cpu'; got {device!r} ({reason})."
        )


def device_here(device: str) -> str:
    """Return the device that a stored model had, or the CPU, with a warning, where it is missing."""
    reason = _missing(device)
    if reason is None:
        return device
    warnings.warn(
        f"the model was on device {device!r}, which is not here ({reason}); it is on the CPU now.",
        stacklevel=3,
    )
    return "cpu"


def _missing(device: str | torch.device) -> str | None:
    if not isinstance(device, str | torch.device):
        return "no name of a device"
    try:
        torch.zeros(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:  # "cuda" without CUDA is an AssertionError
        return str(error).splitlines()[0]
    return None
