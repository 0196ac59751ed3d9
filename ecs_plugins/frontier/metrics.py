"""Answer quality: exact match and token F1 as the HotpotQA evaluation defines them.

Answers are compared in lower case, without punctuation, without the articles a, an and the, and
with white space collapsed. Yes, no and "noanswer" count only when both sides say the same.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


def normalize_answer(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the prediction equals one of the answers after normalisation, else 0.0."""
    return float(any(normalize_answer(prediction) == normalize_answer(a) for a in answers))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """The best F1 over the answers, in [0, 1]; 0.0 without answers."""
    return max((_f1(prediction, answer) for answer in answers), default=0.0)


def _f1(prediction: str, answer: str) -> float:
    said, known = normalize_answer(prediction), normalize_answer(answer)
    if said != known and (said in _CLOSED or known in _CLOSED):
        return 0.0
    said_tokens, known_tokens = said.split(), known.split()
    common = sum((Counter(said_tokens) & Counter(known_tokens)).values())
    if not common:
        return 0.0
    precision, recall = common / len(said_tokens), common / len(known_tokens)
    return 2 * precision * recall / (precision + recall)
