"""How hard to look for structure, and how much evidence may speak when it is decided."""

import math
from dataclasses import dataclass, field, replace

from dbull.mixture.prior import MixturePrior
from dbull.mixture.updates import n_features

OBSERVATIONS_PER_PARAMETER = 36.0
MIN_EVIDENCE = 1000.0
MANY_CLUSTERS = 24  # for which evidence per cluster is given while none is known
FEW_DIMS = 5  # for which evidence per cluster is given; what has more parameters needs more to stand


@dataclass(frozen=True)
class SearchSettings:
    """How hard to look for structure. The paper's values where the paper has one."""

    fresh_sizes: tuple[int, ...] = (2, 3, 5, 10)  # fresh components per birth; the paper: 10; () for none
    fresh_rows: int = 800  # points collected for a birth, at most
    fresh_steps: int = 30
    refine_steps: int = 4  # local and global steps before a proposal is compared
    merge_pairs: int = 8  # pairs tried per round of merges
    min_birth_rows: float = 4.0  # a component with fewer rows is not expanded
    min_effective_rows: float = 5.0  # newborns with less evidence than this are dissolved,
    min_rows_per_dim: float = 0.5  # and with less than this per dimension
    max_clusters: int = 1000
    max_rounds: int = 30
    second_chances: int = 1  # quiet rounds in which failed births are tried again with other seeds
    max_laps: int = 50
    tolerance: float = 1e-5  # relative gain of the bound per lap at which laps stop
    batch_rows: int = 20_000


@dataclass(frozen=True)
class FitSettings:
    """What to fit and how.

    `prior` None means: in the units of the data, in step with the statistics. `max_evidence` is the number of
    observations that may speak when structure is decided: "auto" for `default_evidence`, None for all.
    """

    prior: MixturePrior | None = None
    concentration: float = 1.0
    max_evidence: str | float | None = "auto"
    evidence_per_cluster: float | None = None  # "auto" means this much for each cluster of a few dimensions
    most_weight: float = 1.0  # of one observation then: less if each tells of others, more if it is several
    search_rows: int = 10_000  # structure is searched on a sample of this size first
    final_laps: int = 20
    final_tolerance: float = 1e-6
    pooling: float = 0.0  # part of the evidence that the expectation of a covariance counts for
    search: SearchSettings = field(default_factory=SearchSettings)

    def without_second_chances(self) -> "FitSettings":
        """Return the same for a search in which what fails is not tried again."""
        return replace(self, search=replace(self.search, second_chances=0))

    def weight(self, n_rows: int, n_dims: int, n_components: int) -> float:
        """Return how much each of `n_rows` observations counts when structure is decided."""
        if self.max_evidence is None:
            return 1.0
        if self.max_evidence != "auto":
            allowed = float(self.max_evidence)
        elif self.evidence_per_cluster is not None:
            larger = max(1.0, n_features(n_dims) / n_features(FEW_DIMS))
            many = n_components or MANY_CLUSTERS
            allowed = self.evidence_per_cluster * larger * min(many, math.sqrt(many * MANY_CLUSTERS))
            # All rows together count at least as one cluster does.
            allowed = min(allowed, max(self.evidence_per_cluster * larger, self.most_weight * n_rows))
        else:
            allowed = default_evidence(n_dims, n_components)
        return min(max(1.0, self.most_weight), allowed / n_rows)

    def pooled_rows(self, n_rows: int, n_dims: int) -> float:
        """Return how many observations, weighted like the others, the expected covariance counts for."""
        return self.pooling * n_rows * self.weight(n_rows, n_dims, 1)


def default_evidence(n_dims: int, n_components: int) -> float:
    """Return the number of observations that may speak for structure when nothing else is said.

    Real clusters are not Gaussian, so evidence that grows with the number of rows always asks for one more
    component. Capping it means: a component must improve the description of the data by more than its own
    cost, measured on a data set of this many rows (a power posterior; Miller & Dunson 2019 call it
    coarsening). The cost of a component grows with its number of parameters, and so does the cap. Beyond
    25 components it grows with the square root of their number, so that many can be told apart without
    splitting feeding itself.
    """
    cap = max(MIN_EVIDENCE, OBSERVATIONS_PER_PARAMETER * n_features(n_dims))
    return cap * math.sqrt(max(1.0, n_components / 25))
