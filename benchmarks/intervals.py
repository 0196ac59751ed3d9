"""95 % intervals by percentile bootstrap or Student's t."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
REPLICATES = 2000

Statistic = Callable[..., npt.NDArray[np.float64]]
"""Function of arrays and ``axis``, like those of NumPy."""


def interval(statistic: Statistic, *samples: npt.ArrayLike, seed: int = 42) -> tuple[float, float]:
    """Return the interval of a statistic of paired samples.

    Of a single observation, both ends are its statistic.
    """
    from scipy.stats import bootstrap  # takes long to import

    data = [np.asarray(sample, dtype=np.float64) for sample in samples]
    if len(data[0]) < 2:
        only = float(statistic(*data, axis=-1))
        return only, only
    with np.errstate(all="ignore"):
        found = bootstrap(
            data,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=REPLICATES,
            confidence_level=LEVEL,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    return float(found.low), float(found.high)


def student_half_width(values: npt.ArrayLike) -> float:
    """Return half the interval of a mean by Student's t, for at least two values."""
    from scipy.stats import t  # takes long to import

    data = np.asarray(values, dtype=np.float64)
    return float(t.ppf((1 + LEVEL) / 2, data.size - 1) * data.std(ddof=1) / data.size**0.5)


def median_interval(values: Sequence[float], seed: int = 42) -> tuple[float, float, float]:
    """Return the median and its interval."""
    return float(np.median(values)), *interval(np.median, values, seed=seed)
