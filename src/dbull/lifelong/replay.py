"""The past, as far as a learner still has it: rows that look like those that are gone.

Made from a snapshot of the learner when a data set arrives, never from the networks under training. Replay
protects the networks and shows where the encoder has moved; it never enters the statistics of the mixture.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.errors import SettingsError
from dbull.lifelong.drift import carried
from dbull.lifelong.imprint import draw_rows
from dbull.lifelong.inference import decode_codes, encode_rows
from dbull.lifelong.state import LearnerState
from dbull.lifelong.triage import is_far
from dbull.mixture.posterior import mean_weights
from dbull.mixture.stats import SufficientStats
from dbull.nets.vae import VAE
from dbull.probability.normal_wishart import expected_covariance

__all__ = ["REPLAYS", "Past", "Replay"]

REPLAYS = ("imprints", "decoded", "none")
N_PROBES = 300  # rows per component that show where the encoder has moved


@dataclass(frozen=True)
class Replay:
    """Replayed rows."""

    inputs: Tensor  # (R, n_inputs)
    values: Tensor  # (R, d) what the snapshot decodes them to
    codes: Tensor  # (R, D) where the snapshot encodes them
    clusters: Tensor  # (R,) ids
    from_values: bool  # whether inputs are those of the values, so that values may be augmented

    def __len__(self) -> int:
        return len(self.inputs)


class Past:
    """A snapshot of a learner, and what can be drawn from it.

    Parameters
    ----------
    source
        "imprints": inputs are drawn from the imprints of components. "decoded": codes are drawn from the
        mixture and decoded, as in the paper. "none": nothing is replayed.
    """

    def __init__(self, state: LearnerState, source: str, generator: torch.Generator):
        self.view = state.view
        self.vae = copy.deepcopy(state.vae).eval()
        self.ids = state.memory.ids
        self.cluster_of = state.cluster_of
        self.imprints = dict(state.imprints)
        self.overall = state.memory.overall
        self.posterior = state.posterior
        self.source = source
        if source == "imprints" and not self.imprints.keys() >= set(self.ids):
            raise SettingsError(
                "replay='imprints' needs imprints of all that was learned, and a data set was learned with "
                "another replay, which keeps none. Go on with that one."
            )
        self._probes: list[Tensor] = []
        self._before: list[Tensor] = []
        if source != "none":
            self._probes = [self.rows_of(k, N_PROBES, generator)[0] for k in range(len(self.ids))]
            self._before = [encode_rows(self.vae, probe)[0] for probe in self._probes]

    def rows_of(
        self, component: int, n_rows: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Draw inputs of a component; and the values they are those of, if they were decoded."""
        if self.source == "imprints":
            return draw_rows(self.imprints[self.ids[component]], n_rows, generator), None
        components = self.posterior.components
        root = torch.linalg.cholesky(expected_covariance(components)[component])
        noise = torch.randn(n_rows, len(root), generator=generator, dtype=torch.float64)
        values = decode_codes(self.vae, components.mean[component] + noise @ root.T)
        return self.view.inputs(values), values

    def replay(self, n_rows: int, per_cluster: bool, generator: torch.Generator) -> Replay | None:
        """Draw `n_rows` rows of each cluster, or in all as the mixture weighs its components."""
        if self.source == "none" or n_rows == 0:
            return None
        weights = self.overall.counts if per_cluster else mean_weights(self.posterior)
        # Rows of another scale would teach the networks nothing but that scale.
        far = [i in self.imprints and is_far(self.imprints[i]) for i in self.ids]
        weights = weights.masked_fill(torch.tensor(far), 0.0)
        groups = [self.cluster_of == c for c in self.cluster_of.unique()] if per_cluster else [weights > 0]
        parts, clusters = [], []
        for group in groups:
            share = torch.where(group, weights, 0.0)
            if not bool(share.any()):
                continue
            drawn = torch.multinomial(share, n_rows, replacement=True, generator=generator)
            for component, n in enumerate(drawn.bincount().tolist()):
                if n > 0:
                    parts.append(self.rows_of(component, n, generator))
                    clusters += [int(self.cluster_of[component])] * n
        if not parts:
            return None
        inputs = torch.cat([part[0] for part in parts])
        codes = encode_rows(self.vae, inputs)[0]
        decoded = [part[1] for part in parts if part[1] is not None]
        values = torch.cat(decoded) if decoded else decode_codes(self.vae, codes)
        return Replay(inputs, values, codes.to(torch.float32), torch.tensor(clusters), bool(decoded))

    def carried(self, vae: VAE) -> SufficientStats:
        """Return the statistics of the past in the coordinates of the encoder as it is now."""
        if not self._probes:
            return self.overall
        return carried(self.overall, self._before, [encode_rows(vae, probe)[0] for probe in self._probes])
