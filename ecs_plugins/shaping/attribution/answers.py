"""An answer and its passages, read, checked and attributed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ecs_plugins.common.aio import check_awaited
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.shaping.attribution.attributing import Attributing
from ecs_plugins.shaping.attribution.cited import AttributedStatement
from ecs_plugins.shaping.attribution.result import Attribution
from ecs_plugins.shaping.attribution.statements import AnswerStatement, statements_of
from ecs_plugins.shaping.attribution.wording import unheld_words
from ecs_plugins.shaping.passages import Unit, build_pool, split_passages
from ecs_plugins.shaping.reading import checked_passages, longest_unit
from ecs_plugins.tokens import TokenLedger


def attribute_answer(
    model: LanguageModel,
    query: str,
    passages: Sequence[str],
    answer: str,
    *,
    context: str = "",
    ranker: Ranker | None = None,
    pool_size: int = 40,
) -> Attribution:
    """See `ContextShaper.attribute`; of many passages the ranker chooses ``pool_size``."""
    started = time.perf_counter()
    for name, text in (("query", query), ("answer", answer)):
        if not isinstance(text, str) or not text.strip():
            raise InvalidInputError(f"the {name} is empty: pass a text")
    ledger = TokenLedger()
    statements = statements_of(answer)
    texts = checked_passages(passages)
    units = _units(model, f"{query} {answer}", texts, ranker, pool_size)
    check_awaited()
    attributed: Sequence[AttributedStatement] = ()
    if statements and units:
        attributing = Attributing(model, query, context, units, ledger)
        attributed = attributing.attribute(answer, statements)
    elif statements:
        attributed = [_without_passages(each, answer) for each in statements]
    return Attribution(
        query=query,
        answer=answer,
        statements=tuple(attributed),
        passages=len(texts),
        model=model.name,
        ledger=ledger,
        seconds=time.perf_counter() - started,
    )


def _units(
    model: LanguageModel,
    looked_for: str,
    passages: Sequence[str],
    ranker: Ranker | None,
    pool_size: int,
) -> list[Unit]:
    """What the model reads: every passage in pieces, or those that the ranker puts first."""
    pieces = split_passages(passages, model.count_tokens, longest_unit(model))
    filled = [unit for unit in pieces if unit.text.strip()]
    if not filled:
        return []
    pool = build_pool(looked_for, filled, ranker, pool_size, always=False)
    return [unit for units in pool.units.values() for unit in units]


def _without_passages(statement: AnswerStatement, answer: str) -> AttributedStatement:
    return AttributedStatement(
        statement.start,
        statement.end,
        statement.text,
        unheld=tuple(unheld_words(statement, answer, [])),
    )
