"""How sure a measured figure is: 95 % intervals by percentile bootstrap, or by Student's t."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
REPLICATES = 2000

Statistic = Callable[..., npt.NDArray[np.float64]]
"""Takes one array per sample and ``axis``, as NumPy's functions do."""


def interval(statistic: Statistic, *samples: npt.ArrayLike, seed: int = 42) -> tuple[float, float]:
    """The interval of a statistic of samples of one length, drawn together (paired).

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
    """Half the interval of a mean by Student's t; of at least two values."""
    from scipy.stats import t  # takes long to import

    data = np.asarray(values, dtype=np.float64)
    return float(t.ppf((1 + LEVEL) / 2, data.size - 1) * data.std(ddof=1) / data.size**0.5)


def median_interval(values: Sequence[float], seed: int = 42) -> tuple[float, float, float]:
    """The median with its interval."""
    return float(np.median(values)), *interval(np.median, values, seed=seed)
