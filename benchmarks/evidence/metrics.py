"""Quality of an order of units, as pure functions.

The paper's metric is F1 at k = the number of pieces of evidence, where precision, recall and F1
are one number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ecs_plugins.errors import InvalidInputError


def recall_at(order: Sequence[int], evidence: Collection[int], k: int) -> float:
    """Share of the evidence among the first ``k``.

    Raises:
        InvalidInputError: There is no evidence.
    """
    return len(_known(evidence) & set(order[:k])) / len(set(evidence))


def evidence_f1(order: Sequence[int], evidence: Collection[int]) -> float:
    """F1 of the first ``k = |evidence|``: precision and recall are equal there."""
    return recall_at(order, evidence, len(_known(evidence)))


def auc(order: Sequence[int], evidence: Collection[int]) -> float | None:
    """Share of (evidence, other) pairs in the right order; None without both kinds in it."""
    known = _known(evidence)
    others_left = sum(index not in known for index in order)
    found = len(order) - others_left
    if not found or not others_left:
        return None
    pairs, right = found * others_left, 0
    for index in order:
        if index in known:
            right += others_left
        else:
            others_left -= 1
    return right / pairs


def _known(evidence: Collection[int]) -> set[int]:
    known = set(evidence)
    if not known:
        raise InvalidInputError("a question without evidence cannot be measured; leave it out")
    return known
