"""How sure a measured figure is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def median_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """The median, and its 95 % interval by percentile bootstrap (2,000 resamples)."""
    draws = np.random.default_rng(seed).choice(np.asarray(values), size=(2000, len(values)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return float(np.median(values)), float(low), float(high)
