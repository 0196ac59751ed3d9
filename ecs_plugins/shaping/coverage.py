"""Passages that complement each other: the next one is to explain what the first leave open.

A question with two hops names two things, and the passages that make one of them likely crowd out
the one passage about the other. The question's tokens show it: each has a log-probability behind
every passage, and a passage adds to those already chosen what it raises a token above the best of
them. This is greedy maximisation of relevance and a facility-location function over the
question's tokens (Lin and Bilmes 2011), and needs no further pass through the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DEPTH = 10
"""Passages chosen with an eye to each other; the others follow by relevance."""


def complementary_order(
    relevance: Sequence[float],
    by_token: Sequence[Sequence[float]],
    weight: float,
    *,
    depth: int = DEPTH,
) -> list[int]:
    """The most relevant passage, then whichever is best in relevance and in what it adds.

    ``relevance + weight * gain``, where the gain is the mean over the question's tokens of how
    many nats a passage raises each above the best of those chosen before it, in standard
    deviations of the passages' own means.

    Args:
        relevance: Of every passage, finite, on a scale of standard deviations.
        by_token: ``[passages, tokens]`` log-probabilities of the question.
        weight: Of the gain.
        depth: How many are chosen in this way.

    Returns:
        Indices, best first; ties by index.
    """
    left = sorted(range(len(relevance)), key=lambda index: (-relevance[index], index))
    logprobs = np.asarray(by_token, dtype=np.float64)
    spread = float(logprobs.mean(axis=1).std()) if len(left) > 1 else 0.0
    if not weight or not spread:
        return left
    chosen = left[:1]
    left = left[1:]
    explained = logprobs[chosen[0]]
    while left and len(chosen) < depth:
        gains = np.maximum(logprobs[left] - explained, 0.0).mean(axis=1) / spread
        scores = np.asarray([relevance[index] for index in left]) + weight * gains
        best = left.pop(int(np.argmax(scores)))
        chosen.append(best)
        explained = np.maximum(explained, logprobs[best])
    return chosen + left
