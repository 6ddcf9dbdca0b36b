"""Comparing records of sufficient statistics."""

import torch

FIELDS = ("counts", "sum_z", "sum_zz", "entropy")


def assert_same(a, b, tolerance=1e-9):
    for name in FIELDS:
        torch.testing.assert_close(
            getattr(a, name),
            getattr(b, name),
            rtol=tolerance,
            atol=tolerance,
            msg=lambda m, n=name: f"{n}: {m}",
        )
