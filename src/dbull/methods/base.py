"""What every estimator shares: checking input and parameters, with errors that say where and what to do."""

import datetime
import logging
import numbers
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from dbull.errors import DataError
from dbull.probability.normal_wishart import NormalWishart, expected_covariance
from dbull.threads import working

_log = logging.getLogger(__name__)
_TIMES = (np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta)
Step = TypeVar("Step")
Result = TypeVar("Result")


def check_rows(
    estimator: BaseEstimator, X: ArrayLike, *, reset: bool, min_rows: int = 1, keep_float32: bool = False
) -> NDArray[Any]:
    """Return X as a float64 array of shape (n_rows, n_columns) with only finite numbers.

    Takes numpy, torch, pandas, polars (eager and lazy) and whatever scikit-learn takes. With `reset` the
    number and names of columns are remembered, otherwise compared with those remembered. `keep_float32` lets
    float32 rows stay what they are.
    """
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    elif type(X).__name__ == "LazyFrame":
        X = X.collect()  # type: ignore[union-attr]
    _refuse_masked(X)
    _refuse_times(X)
    rows: NDArray[Any] = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=[np.float64, np.float32] if keep_float32 else np.float64,
        order="C",  # sums in one order, so that the container changes no bit of the result
        ensure_all_finite=False,
        ensure_min_samples=min_rows,
    )
    # A sum is finite exactly when all its terms are, unless it overflows; only then look at each number.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(rows.sum())
    if suspicious and not np.isfinite(rows).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        names = getattr(estimator, "feature_names_in_", None)
        where = f"column {column}" if names is None else f"column {column} ({names[column]!r})"
        what = "NaN" if np.isnan(rows[row, column]) else "infinity"
        n_bad = int((~np.isfinite(rows)).any(1).sum())
        raise DataError(
            f"Input X contains {what}: first at row {row}, {where}; {n_bad} of {len(rows)} rows have NaN or "
            "infinity. Remove or fill them before learning or predicting."
        )
    return rows


def _refuse_masked(X: Any) -> None:
    """Refuse values that are marked as invalid; below the mask lies some number, which would be learned."""
    mask = np.ma.getmask(X)
    if isinstance(X, list | tuple):
        mask = np.array([np.ma.is_masked(row) for row in X])
    if mask is np.ma.nomask or not mask.any():
        return
    place = ", ".join(f"{what} {i}" for what, i in zip(("row", "column"), np.argwhere(mask)[0], strict=False))
    raise DataError(
        f"Input X contains masked values: first at {place}; {int(mask.sum())} in all. Fill them, or remove "
        "their rows, before learning or predicting."
    )


def _refuse_times(X: Any) -> None:
    """Refuse dates, times and durations: as numbers they would count some unit since some day."""
    kinds: dict[Any, Any] = {}
    if hasattr(X, "columns") and hasattr(X, "dtypes"):  # pandas and polars
        kinds = dict(zip(map(str, X.columns), X.dtypes, strict=True))
    elif hasattr(X, "schema"):  # pyarrow
        kinds = dict(zip(X.schema.names, X.schema.types, strict=True))
    elif isinstance(X, np.ndarray | list | tuple):
        with suppress(ValueError):  # rows of different lengths, which others refuse
            X = np.asarray(X)
            kinds = {None: X.dtype}
    if any(str(kind) == "object" for kind in kinds.values()):
        cells = np.asarray(X, dtype=object)
        columns = cells.T if cells.ndim == 2 else [cells.ravel()]
        found = [
            next((type(cell) for cell in column if isinstance(cell, _TIMES)), None) for column in columns
        ]
        names = list(kinds) if len(kinds) == len(found) else range(len(found))
        kinds |= dict(zip(names, found, strict=True))
    for name, kind in kinds.items():
        if _is_time(kind):
            where = "every column" if name is None else f"column {name!r}"
            raise DataError(
                f"Input X contains times ({kind}) in {where}: expected numbers. Make them numbers first, "
                "such as seconds since a day that you choose, or leave the column out."
            )


def _is_time(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, _TIMES):
        return True
    if getattr(kind, "kind", "") in ("m", "M"):  # numpy, pandas
        return True
    if callable(getattr(kind, "is_temporal", None)):  # polars
        return bool(kind.is_temporal())
    return str(kind).startswith(("timestamp", "date32", "date64", "time32", "time64", "duration", "period["))


def as_tensor(rows: NDArray[Any]) -> torch.Tensor:
    """Return rows as a tensor without a copy, but for read-only ones, which torch warns of."""
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    whole: bool = False,
    others: tuple[str | None, ...] = (),
) -> None:
    """Raise a ValueError that names the parameter, what is allowed and what was given."""
    if isinstance(value, str | None) and value in others:
        return
    kind = numbers.Integral if whole else numbers.Real
    bound = f" above {above:g}" if above is not None else f" of at least {at_least:g}"
    allowed = f"a{' whole' if whole else ''} number{bound}"
    if others:
        allowed += f", {'or ' if len(others) == 1 else ''}{' or '.join(map(repr, others))}"
    ok = isinstance(value, kind) and not isinstance(value, bool) and np.isfinite(float(value))
    if not ok or (above is not None and value <= above) or (at_least is not None and value < at_least):
        raise ValueError(f"{name} must be {allowed}; got {value!r}.")


@contextmanager
def unchanged_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Give an estimator back all its attributes if what is done here fails, an interrupt included."""
    before = estimator.__dict__.copy()
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def new_seed(random_state: Any) -> int:
    """Return the seed of a new life from scikit-learn's `random_state`."""
    if isinstance(random_state, numbers.Integral):
        check_number("random_state", random_state, at_least=0, whole=True)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def draw_points(components: NormalWishart, which: NDArray[Any], rng: np.random.RandomState) -> NDArray[Any]:
    """Draw a point of each of these components, (N, D), with means and covariances as they are expected."""
    roots = np.linalg.cholesky(expected_covariance(components).numpy())[which]
    noise = rng.standard_normal((len(which), components.n_dims))
    points: NDArray[Any] = components.mean.numpy()[which] + np.einsum("nij,nj->ni", roots, noise)
    return points


def drained(
    learning: Generator[Step, None, Result], callback: Callable[[Step], object] | None = None
) -> tuple[Result, list[Step]]:
    """Run a learner to its end; return its result and everything it told on the way."""
    told: list[Step] = []
    while True:
        try:
            with working():
                step = next(learning)
        except StopIteration as end:
            result: Result = end.value
            return result, told
        told.append(step)
        _log.debug("%s", step)
        if callback is not None:
            callback(step)


@dataclass(frozen=True)
class Capabilities:
    """What a method can do: the columns of the paper's table of capabilities.

    A class declares them as `capabilities`; tests/methods/test_capabilities.py shows each claim.
    """

    learns_representation: bool  # codes are learned, not given
    learns_k: bool  # finds the number of clusters by itself
    expands: bool  # finds more clusters when later data bring new kinds
    remembers: bool  # learns the next data set without rows of earlier ones, and still knows those
