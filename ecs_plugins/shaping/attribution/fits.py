"""What joins shift and words: logistic functions.

Learned with the bundled model from questions of SQuAD and HotpotQA (CC BY-SA 4.0) and MuSiQue
(CC BY 4.0) by ``python -m benchmarks attribution``.
"""

from __future__ import annotations

from ecs_plugins.shaping.probability import ProbabilityFit

CITATION = ProbabilityFit(
    -1.495,
    {
        "shift": 0.008,
        "question_shift": -0.842,
        "covered": 2.21,
        "question_covered": -2.951,
        "shift_among_all": 0.468,
        "question_shift_among_all": 1.194,
        "bm25_among_all": 1.171,
    },
)
"""That a passage is evidence of a statement."""

CITATION_OF_FEW = ProbabilityFit(
    -2.46,
    {"shift": 0.324, "covered": 3.403},
)
"""The same where there are so few passages that none can stand out."""
