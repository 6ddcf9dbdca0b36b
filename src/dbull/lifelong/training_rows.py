"""What the networks are trained on, and where it lies meanwhile.

On a GPU a step takes less time than a batch of rows takes to get there. So rows go there once, if they fit,
and all that is drawn in a step is drawn there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dbull.lifelong.neighbourhood import NeighbourGraph
from dbull.lifelong.past import Replay

ROOM = 0.5  # share of the free memory of a device that rows may take; networks and batches need some too


@dataclass(frozen=True)
class TrainingRows:
    """What the networks are trained on: the data set in memory, then replayed rows of the past."""

    values: Tensor  # (N + R, d) float32, what the decoder describes
    inputs: Tensor  # (N + R, n_inputs) what the encoder sees
    kept_codes: Tensor  # (R, D) where the replayed rows were
    augmented: int  # how many rows, from the first, may be changed at each visit
    graph: NeighbourGraph | None = None  # of all rows, if codes are laid out along it
    places: Tensor | None = None  # (N + R, D) where the codes of all rows belong
    redraw: Callable[[], Replay | None] | None = None  # replayed rows anew, as many
    anew: bool = False  # whether they take the place of those before, what they decode to included

    @classmethod
    def of(cls, values: Tensor, inputs: Tensor, replay: Replay | None, latent_dim: int) -> TrainingRows:
        """Put replayed rows behind those in memory."""
        if replay is None:
            return cls(values, inputs, torch.zeros(0, latent_dim), len(values))
        return cls(
            torch.cat([values, replay.values]),
            torch.cat([inputs, replay.inputs]),
            replay.codes,
            len(values) + (len(replay) if replay.from_values else 0),
        )

    @property
    def n_present(self) -> int:
        """Rows of the data set in memory."""
        return len(self.values) - len(self.kept_codes)

    @property
    def tensors(self) -> list[Tensor]:
        """All that a step may need."""
        graph = [] if self.graph is None else [self.graph.neighbours, self.graph.weights]
        places = [] if self.places is None else [self.places]
        return [self.values, self.inputs, self.kept_codes, *graph, *places]

    def to(self, device: torch.device) -> TrainingRows:
        """Return the rows on a device; themselves if they are there."""
        if self.values.device == device:
            return self
        graph = self.graph
        if graph is not None:
            graph = replace(graph, neighbours=graph.neighbours.to(device), weights=graph.weights.to(device))
        values, inputs, kept = (part.to(device) for part in (self.values, self.inputs, self.kept_codes))
        places = None if self.places is None else self.places.to(device)
        return replace(self, values=values, inputs=inputs, kept_codes=kept, graph=graph, places=places)

    def place_for(self, device: torch.device) -> torch.device:
        """Return where the rows should lie while networks on a device learn them: there, if they fit."""
        size = sum(part.numel() * part.element_size() for part in self.tensors)
        return device if fits(size, device) else torch.device("cpu")


def fits(n_bytes: int, device: torch.device) -> bool:
    """Tell whether a device has room for so much beside networks and batches."""
    return n_bytes <= ROOM * free_memory(device)


def free_memory(device: torch.device) -> float:
    """Return how many bytes a device has left; that of the CPU holds what is asked about already."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return float(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return float("inf")


def generator_on(place: torch.device, seed: int) -> torch.Generator:
    """Return random numbers that are made where they are needed."""
    return torch.Generator(place).manual_seed(seed)


def random_bytes(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw a byte for each number of a matrix: a quarter of the time that as many fractions take."""
    words = -(-shape.numel() // 8)
    drawn = torch.randint(-(2**63), 2**63 - 1, (words,), generator=generator, device=generator.device)
    return drawn.view(torch.uint8)[: shape.numel()].view(shape)
