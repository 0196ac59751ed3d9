"""What a routed answer is worth where nobody knows the right one: its support by what was read.

The prompt of the call that answered holds the context that a strategy has built. So it is what an
answer is held against, whatever the framework, and no chain has to hand its documents over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ecs_plugins.integrations.routed_query import RoutedQuery
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.lm.local import as_model
from ecs_plugins.shaping.shaper import ContextShaper

_PARAGRAPHS = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class SupportJudge:
    """Scores answers by `Attribution.support`.

    Attributes:
        model: What attributes: a model, its name, or None for the bundled one.
    """

    model: str | LanguageModel | None = None

    def score(self, query: RoutedQuery, question: str) -> float | None:
        """The support of what a query was answered, in [0, 1].

        None where nothing was answered, or an answer that states nothing.
        """
        if query.error is not None or query.last_call is None:
            return None
        prompt, reply = query.last_call
        asked = question.strip()
        if not asked or not reply.strip():
            return None
        # What the question says supports no answer to it.
        read = prompt.replace(asked, " ")
        passages = [part for part in _PARAGRAPHS.split(read) if part.strip()]
        shaper = ContextShaper(as_model(self.model))
        return shaper.attribute(asked, passages, reply).support

    def observe(self, query: RoutedQuery, question: str) -> None:
        """Let the router learn from the score; nothing where there is none."""
        score = self.score(query, question)
        if score is not None:
            query.router.observe(query.decision, score)
