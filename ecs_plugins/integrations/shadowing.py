"""Answering a query a second time, by a chain that was not chosen; see `frontier.shadow`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ecs_plugins.frontier.reloading import chosen_name
from ecs_plugins.frontier.shadow import Shadow, ShadowAnswer, background, other_decision
from ecs_plugins.integrations.routed_query import RoutedQuery
from ecs_plugins.integrations.supported import SupportJudge


@dataclass(frozen=True, slots=True)
class SecondAnswer:
    """What is needed to answer a query again.

    Attributes:
        query: As it was answered and settled.
        question: Its text.
        answer: What was answered; empty where it was streamed.
        names: Labels and strategies of what can run.
        ask: Runs what has a name, counts for a query, and returns the text.
        support: Scores the second answer where the shadow has no judge of its own.
    """

    query: RoutedQuery
    question: str
    answer: str
    names: Collection[str]
    ask: Callable[[str, RoutedQuery], str]
    support: SupportJudge | None = None

    def run(self, shadow: Shadow) -> None:
        """Answer, book what that cost, and observe what it is worth."""
        first = self.query
        router = first.router
        decision = other_decision(router, first.decision, self.names)
        if decision is None:
            return
        query = RoutedQuery(router, decision, first.context_id, first.count_tokens, is_shadow=True)
        name = chosen_name(decision, self.names)
        try:
            text = self.ask(name, query)
        except Exception as error:
            query.error = error
            raise
        finally:
            query.settle()
        if shadow.judge is None:
            if self.support is not None:
                self.support.observe(query, self.question)
            return
        answer = ShadowAnswer(
            question=self.question,
            answer=text,
            chosen_answer=self.answer,
            label=decision.label,
            chosen_label=first.decision.label,
        )
        score = shadow.judge(answer)
        if score is not None:
            router.observe(decision, score)


def learn(
    shadow: Shadow | None, judge: SupportJudge | None, second: Callable[[], SecondAnswer]
) -> None:
    """In the background, judge an answer, and answer again if the draw says so."""
    if judge is not None:
        background.submit(lambda: _judge(judge, second()))
    if shadow is not None and shadow.draws():
        background.submit(lambda: second().run(shadow))


def _judge(judge: SupportJudge, second: SecondAnswer) -> None:
    judge.observe(second.query, second.question)
