"""The default chain of every point that a frontier can choose: context, prompt, model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.language_models import LanguageModelLike
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import Runnable

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import ANSWER_PROMPT, check_template
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.points import config_json
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.integrations.running import PreparedContexts, TokenCounter, check_strategy
from ecs_plugins.langchain.context import FrontierContext, token_counter


def default_chains(
    frontier: EfficiencyFrontier,
    *,
    llm: LanguageModelLike,
    compressor: LanguageModelLike | None = None,
    strategies: Iterable[Strategy] = (),
    scorer: object = None,
    embedder: object = None,
    cache_dir: str | None = None,
    prompt: str = ANSWER_PROMPT,
    count_tokens: TokenCounter | None = None,
) -> dict[str, Runnable[Any, Any]]:
    """Label -> chain, for every routable point; the arguments are those of the router.

    Raises:
        ConfigurationError: A strategy is unknown, or the prompt or a token counter is missing.
    """
    check_template(prompt)
    compresses = any(p.strategy.startswith("memory_compression") for p in frontier.routable)
    if compresses and token_counter(compressor or llm, count_tokens) is None:
        raise ConfigurationError(
            "compressions are sized in tokens and this model does not count them; give "
            "count_tokens=..., such as lambda texts: [llm.get_num_tokens(t) for t in texts]"
        )
    own = {(s.name, config_json(s.config)): s for s in strategies}
    if embedder is None and any(p.strategy == "dense" for p in frontier.routable):
        from ecs_plugins.ranking.embedder import default_embedder

        embedder = default_embedder()
    answer = answer_template(prompt) | llm
    prepared = PreparedContexts()
    chains: dict[str, Runnable[Any, Any]] = {}
    for point in frontier.routable:
        if point.key not in own:
            check_strategy(point)
        context = FrontierContext(
            strategy=point.strategy,
            config=dict(point.config),
            llm=compressor or llm,
            scorer=scorer,
            embedder=embedder,
            cache_dir=cache_dir,
            custom=own.get(point.key),
            count_tokens=count_tokens,
            prepared=prepared,
        )
        chains[point.label] = context | answer
    return chains


def answer_template(template: str) -> PromptTemplate:
    """The calibration's prompt; braces around anything else are plain text."""
    marks = {"{context}": "\0c\0", "{question}": "\0q\0"}
    for name, mark in marks.items():
        template = template.replace(name, mark)
    template = template.replace("{", "{{").replace("}", "}}")
    for name, mark in marks.items():
        template = template.replace(mark, name)
    return PromptTemplate(template=template, input_variables=["context", "question"])
