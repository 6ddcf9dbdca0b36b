"""What sets a cluster apart from all other rows and from its nearest neighbour, and newborns from all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dbull.lifelong.profiles import Profile, feature_profiles, gaps
from dbull.methods.sparse import column_profiles
from dbull.methods.traits import NEGLIGIBLE, Columns, Trait
from dbull.methods.words import ClusterWords
from dbull.scaling import LINEAR, Curve
from dbull.tables import Feature

if TYPE_CHECKING:
    from dbull.ledger import ArrivalReport
    from dbull.lifelong.state import LearnerState
    from dbull.methods.answers import LearnedClusters
    from dbull.methods.dbull import DBULL

N_DRAWS = 120  # decoded samples of a cluster, where nothing else tells what its rows are like
PLACES = (
    ("top left", "top", "top right"),
    ("left", "centre", "right"),
    ("bottom left", "bottom", "bottom right"),
)


@dataclass(frozen=True)
class Explanation:
    """What sets a cluster apart, strongest first."""

    cluster: int
    traits: tuple[Trait, ...]  # from all other rows
    nearest: int | None  # the cluster whose codes are nearest
    from_nearest: tuple[Trait, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield it line by line, for people."""
        yield f"cluster {self.cluster} is set apart by"
        yield from _listed(self.traits, "others")
        if self.nearest is not None and self.from_nearest != self.traits:  # as they are of two clusters
            yield f"and from cluster {self.nearest}, the nearest, by"
            yield from _listed(self.from_nearest, f"cluster {self.nearest}")

    @property
    def sentence(self) -> str:
        """The three strongest traits in one line, empty if there is none."""
        return "; ".join(map(str, self.traits[:3]))


def _listed(traits: Sequence[Trait], others: str) -> Iterator[str]:
    for trait in traits:
        yield f"  {trait.told(others)} ({trait.effect:+.2f})"
    if not traits:
        yield "  no column alone"


class Explainer:
    """The profiles of a model's clusters, made once for all explanations."""

    def __init__(self, model: LearnedClusters):
        self._ids = model.state_.cluster_ids
        self._gaps = gaps(model.state_)
        self._words = ClusterWords.of(model)
        shape = getattr(model, "image_shape", None)
        if shape is not None:
            features, pooled = _regions([int(side) for side in shape])
            self._columns = Columns(features)
            self._profiles = _decoded(model, pooled)
            return
        if self._words is None and hasattr(model, "column_counts_"):
            columns, self._profiles = column_profiles(model)
            self._columns = Columns(columns, more=True)  # most rows lack most columns
            return
        self._columns = Columns(_features(model))
        self._profiles = feature_profiles(model.state_) or _decoded(model, model.state_.view.bent)

    def __call__(self, cluster: int, n_traits: int = 6, among: Collection[int] | None = None) -> Explanation:
        """Explain one cluster among others, all of them unless told."""
        others = [other for other in (among or self._ids) if other != cluster]
        if not others:
            return Explanation(cluster, (), None, ())
        nearest = self.nearest(cluster, others)[0][0]
        traits = self._traits(cluster, others, n_traits)
        return Explanation(cluster, traits, nearest, self._traits(cluster, [nearest], n_traits))

    def _traits(self, cluster: int, others: Sequence[int], n_traits: int) -> tuple[Trait, ...]:
        """Return what sets a cluster apart from others: columns, and words in place of topics."""
        words = () if self._words is None else self._words.traits(cluster, n_traits, others)
        if self._words is not None and self._words.alone:
            return words
        texts = () if self._words is None else self._words.columns
        here, there = self._profiles[cluster], [part for one in others for part in self._profiles[one]]
        columns = self._columns.traits(here, there, n_traits + len(texts))
        some = words[: max(1, n_traits // 2)]  # many words can say the same
        told = (replace(word, column=" ".join(texts), part=f'"{word.column}"') for word in some)
        found = [*(one for one in columns if one.column not in texts), *told]
        found.sort(key=lambda trait: -abs(trait.effect))
        return tuple(trait for trait in found[:n_traits] if abs(trait.effect) >= NEGLIGIBLE)

    def nearest(self, cluster: int, among: Collection[int]) -> tuple[tuple[int, float], ...]:
        """Return the other clusters by the distance of their centres over the sum of both spreads."""
        apart = zip(self._gaps[self._ids.index(cluster)].tolist(), self._ids, strict=True)
        found = sorted((gap, other) for gap, other in apart if other != cluster and other in among)
        return tuple((other, gap) for gap, other in found)


def with_reasons(
    model: DBULL, state: LearnerState, report: ArrivalReport
) -> tuple[LearnerState, ArrivalReport]:
    """Say what sets newborn clusters apart from those that were known, in the report and in the events."""
    if not report.born or report.n_clusters < 2:
        return state, report
    learned = copy.copy(model)
    learned._adopt(state)
    explain = Explainer(learned)
    known = [cluster for cluster in report.rows if cluster not in report.born]  # none in a first data set
    reasons = {cluster: explain(cluster, among=known).sentence for cluster in report.born}
    state.ledger.explain_births(reasons)
    born = {cluster: replace(one, because=reasons[cluster]) for cluster, one in report.born.items()}
    return state, replace(report, born=born)


def _features(model: LearnedClusters) -> Sequence[Feature]:
    """Return what the values of a row mean."""
    if hasattr(model, "column_encoder_"):
        return model.column_encoder_.features
    measure = "weight" if model.state_.view.kind == "sparse" else "value"
    names = model.value_names_ or [f"column {i}" for i in range(model.state_.vae.shape.n_values)]
    curves = model.state_.view.curves or [LINEAR] * len(names)
    return [_number(name, measure, curve) for name, curve in zip(names, curves, strict=True)]


def _number(name: str, measure: str, curve: Curve = LINEAR) -> Feature:
    return Feature(name, "number", "value", measure, 0.0, 1.0, curve)


def _decoded(
    model: LearnedClusters, pooled: Callable[[torch.Tensor], torch.Tensor]
) -> dict[int, list[Profile]]:
    """Return profiles of decoded samples, each counted as often as its cluster has rows."""
    found = {}
    for cluster, weight in zip(model.cluster_ids_.tolist(), model.weights_.tolist(), strict=True):
        codes, _ = model.sample_codes(N_DRAWS, cluster, random_state=cluster)
        drawn = Profile.of_rows(pooled(torch.from_numpy(model.inverse_transform(codes))))
        found[cluster] = [Profile(max(weight, 1e-12), drawn.mean, drawn.variance)]
    return found


def _regions(shape: Sequence[int]) -> tuple[tuple[Feature, ...], Callable[[torch.Tensor], torch.Tensor]]:
    """Return the ninths of an image as features, and what gives the brightness of each."""
    height, width = shape[:2]
    sides = 3 if height >= 3 else 1, 3 if width >= 3 else 1
    rows, columns = (slice(None) if side == 3 else slice(1, 2) for side in sides)
    names = [name for row in PLACES[rows] for name in row[columns]]

    def brightness(pixels: torch.Tensor) -> torch.Tensor:
        grey = pixels.reshape(len(pixels), height, width, -1).mean(3)
        return torch.nn.functional.adaptive_avg_pool2d(grey[:, None], sides).flatten(1)

    return tuple(_number(f"brightness {name}", "brightness") for name in names), brightness
