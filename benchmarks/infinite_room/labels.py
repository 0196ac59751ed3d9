"""Labels of memories in the Infinite Room: is a contradiction drift or noise?

The shipped memory keeps texts and learns only whether using them helped; in this world a memory
stands for a label that may change and that observations may lie about. The belief about it is a
hidden Markov filter: between two observations the truth changes with probability ``change``, and
an observation lies with probability ``lie``. Both are learned from how earlier contradictions
turned out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Contradiction = Literal["learned", "newest", "never"]

_PRIOR_REPEATS = 20.0
_ESTABLISHED = 2
_NEGLIGIBLE = 1e-4
_FLOOR = 0.01


@dataclass(slots=True)
class _Belief:
    """Label of one memory: probability and count of each value."""

    weights: dict[int, float]
    seen: Counter[int]
    contested: tuple[int, int] | None = None

    @property
    def label(self) -> int:
        return max(self.weights, key=lambda label: self.weights[label])


@dataclass(slots=True)
class Labels:
    """Labels of all memories of one stream, by id.

    Attributes:
        contradiction: What an observation that contradicts a memory does to it: ``learned`` from
            how earlier contradictions turned out, ``newest`` wins, or ``never`` overwrite.
    """

    contradiction: Contradiction = "learned"
    _beliefs: dict[str, _Belief] = field(default_factory=dict)
    _repeats: float = 0.0
    _drifts: float = 0.0
    _noises: float = 0.0
    _possible: int = 2

    def of(self, name: str) -> int:
        """Return the label that a memory answers with."""
        return self._beliefs[name].label

    def founded(self, name: str, label: int) -> None:
        """Start a memory with one observation."""
        self._beliefs[name] = _Belief({label: 1.0}, Counter([label]))

    def repeated(self, name: str, label: int) -> bool:
        """Update a memory that was observed again; return True if its label agreed."""
        belief = self._beliefs[name]
        agrees = belief.label == label
        self._settle(belief, label)
        belief.seen[label] += 1
        self._possible = max(self._possible, len(belief.seen))
        if self.contradiction == "newest":
            belief.weights = {label: 1.0}
        elif self.contradiction == "learned":
            belief.weights = self._updated(belief.weights, label)
        return agrees

    def merged(self, name: str, parts: Sequence[str]) -> None:
        """Merge memories, oldest first, into one; it may be among them."""
        first, *others = (self._beliefs[part] for part in parts)
        for other in others:
            first = _Belief(
                self._joined(first.weights, other.weights),
                first.seen + other.seen,
                other.contested or first.contested,
            )
        self._beliefs[name] = first

    def keep(self, names: Iterable[str]) -> None:
        """Forget all others."""
        self._beliefs = {name: self._beliefs[name] for name in names}

    def _settle(self, belief: _Belief, label: int) -> None:
        """Settle an open contradiction with the new label, or open one."""
        believed, contested = belief.label, belief.contested
        belief.contested = None
        if contested is not None:
            self._repeats += 1.0
            if label == contested[1]:
                self._drifts += 1.0
                return
            self._noises += 1.0
            if label != contested[0]:
                belief.contested = (contested[0], label)
        elif belief.seen[believed] >= _ESTABLISHED:
            if label == believed:
                self._repeats += 1.0
            else:
                belief.contested = (believed, label)

    def _updated(self, weights: dict[int, float], label: int) -> dict[int, float]:
        """Return the belief after the truth may have changed and ``label`` was observed."""
        total = self._repeats + _PRIOR_REPEATS
        change, lie = (self._drifts + 1.0) / total, (self._noises + 1.0) / total
        possible = max(self._possible, len(weights) + 1)
        after = {known: (1.0 - change) * weight for known, weight in weights.items()}
        after.setdefault(label, 0.0)
        return _normalised(
            {
                known: (weight + change / possible)
                * (lie / possible + (1.0 - lie if known == label else 0.0))
                for known, weight in after.items()
            }
        )

    def _joined(self, older: dict[int, float], newer: dict[int, float]) -> dict[int, float]:
        if self.contradiction != "learned":
            return newer if self.contradiction == "newest" else older
        # Ties go to the newer side, whose labels come first.
        return _normalised(
            {
                label: max(older.get(label, 0.0), _FLOOR) * max(newer.get(label, 0.0), _FLOOR)
                for label in [*newer, *older]
            }
        )


def _normalised(weights: dict[int, float]) -> dict[int, float]:
    total = sum(weights.values())
    shares = {label: weight / total for label, weight in weights.items()}
    top = max(shares, key=lambda label: shares[label])
    return {label: share for label, share in shares.items() if share > _NEGLIGIBLE or label == top}
