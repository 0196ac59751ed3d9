"""In-context reranking by attention, compared with the default.

All passages stand in one prompt, the likeliest last, and the question behind them. A passage is
worth what the question's tokens attend to it, in a few heads that look things up, less what the
tokens of a question without content do (Chen, Gutiérrez and Su 2025, arXiv 2410.02642). Z-scores of
both are added. It stands here, and not in the package, by what it was measured to be worth: see
"Attention of the question's tokens" in docs/measurements/tried.md.

An evidence benchmark takes it as ``--signal benchmarks.evidence.attention:default_and_attention``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import LanguageModel, ScoreResult
from ecs_plugins.lm.encoding import encoder_of
from ecs_plugins.lm.prompts import PLAIN, PromptTemplate
from ecs_plugins.lm.tokenization import Ids, SegmentEncoder
from ecs_plugins.ranking.fused import z_scores
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping.signals.base import ScoringTask, Signal, SignalAround, UnitUtility
from ecs_plugins.shaping.signals.fused import RankFused, complementary_order
from ecs_plugins.shaping.signals.likelihood import QueryLikelihood
from ecs_plugins.tokens import Role, Stage, TokenLedger

TEMPLATE = PromptTemplate(
    before="Here are some passages:\n",
    passage="Passage: {passage}\n",
    after="",
    cue="Question:",
    response=" {question}",
)
"""All passages, then the question."""
CONTENT_FREE = "N/A"
"""Question without content; its attention is subtracted."""
HEADS = ((15, 6), (7, 7), (18, 7), (17, 4))
"""``(layer, head)``, from 0, of SmolLM2-135M-Instruct, chosen on 16 questions of LoCoMo."""


@dataclass(frozen=True, slots=True)
class AttendedTask(ScoringTask):
    """A task, and how much its question attends to each passage, by its text."""

    attention: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Attended(SignalAround):
    """A signal in z-scores whose order also heeds attention, by the sum of both.

    Attributes:
        signal: What is measured, such as `RankFused` without coverage: passages that complement
            each other come first here as there. The utility stays its own.
        heads: ``(layer, head)``, from 0.
    """

    signal: Signal
    heads: Sequence[tuple[int, int]] = HEADS

    reads_best_first = True

    @property
    def name(self) -> str:
        """The signal's name and ``+attention``."""
        return f"{self.signal.name}+attention"

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Complete the task for the signal, and read all passages and the question together.

        Raises:
            ConfigurationError: The model is no `LocalLM`.
        """
        task = self.signal.prepare(task, model, ledger)
        pair = getattr(model, "pair", None)
        if pair is None:
            raise ConfigurationError(f"{model.name} does not show its attention; use a LocalLM")
        twin, encoder = twin_of(*pair(), depth=1 + max(layer for layer, _ in self.heads))
        texts = list(dict.fromkeys(passage.strip() for passage in reversed(task.passages)))
        shares, tokens = attention_shares(twin, encoder, task.query, texts, self.heads)
        ledger.book(Stage.QUERY, Role.SCORER, tokens)
        known = {each.name: getattr(task, each.name) for each in fields(ScoringTask)}
        return AttendedTask(**known, attention=dict(zip(texts, shares, strict=True)))

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The signal's utilities, ordered together with attention."""
        assert isinstance(task, AttendedTask)
        found = self.signal.utilities(task, results)
        drawn = z_scores([task.attention.get(text.strip(), math.nan) for text in task.passages])
        relevance = [
            unit.score + (0.0 if math.isnan(z) else z) for unit, z in zip(found, drawn, strict=True)
        ]
        by_token = [unit.by_token for unit in found]
        order = complementary_order(relevance, by_token, 1.0, np.zeros([len(found)] * 2))
        placed = dict(zip(order, sorted(relevance, reverse=True), strict=True))
        return [replace(unit, order_by=placed[index]) for index, unit in enumerate(found)]


def default_and_attention() -> Attended:
    """The default of a question without an answer, together with attention."""
    return Attended(RankFused(QueryLikelihood(), (BM25Ranker(),), coverage=0.0))


@torch.inference_mode()
def attention_shares(
    model: Any, encoder: SegmentEncoder, question: str, texts: Sequence[str], heads: Any
) -> tuple[list[float], int]:
    """Return the attention of a question to each text, minus that of `CONTENT_FREE`.

    Returns:
        Per text, the sum over the heads of the mean over the question's tokens of the weights of
        the text's tokens; and the tokens computed. The texts are computed once.
    """
    from transformers import DynamicCache

    prompt = encoder.with_lead(encoder.join(TEMPLATE.prefix(PLAIN, {}), at_head=True))
    spans = []
    for text in texts:
        before, own, behind = encoder.encode(TEMPLATE.candidate(text))
        spans.append((len(prompt) + len(before), len(prompt) + len(before) + len(own)))
        prompt += before + own + behind
    kept = DynamicCache()
    model.set_attn_implementation("sdpa")
    model(input_ids=_ids(model, prompt), past_key_values=kept, use_cache=True)
    model.set_attn_implementation("eager")
    totals, computed = [], len(prompt)
    for asked in (question.strip(), CONTENT_FREE):
        cue, own = encoder.encode(TEMPLATE.continuation(PLAIN, {"question": asked}, ("question",)))
        found = model(
            input_ids=_ids(model, cue + own),
            past_key_values=kept,
            use_cache=True,
            output_attentions=True,
        ).attentions
        kept.crop(-len(cue + own))
        rows = sum(found[layer][0, head, len(cue) :].float() for layer, head in heads)
        mean = torch.as_tensor(rows).mean(dim=0)
        totals.append([float(mean[start:stop].sum()) for start, stop in spans])
        computed += len(cue + own)
    return [with_it - without for with_it, without in zip(*totals, strict=True)], computed


def _ids(model: Any, ids: Ids) -> torch.Tensor:
    return torch.tensor([ids], device=model.device)


@cache
def twin_of(model: Any, tokenizer: Any, depth: int) -> tuple[Any, SegmentEncoder]:
    """The first layers of a model, sharing its weights, and the encoder of its tokenizer."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model.base_model, shared)
    twin.layers = twin.layers[:depth]
    return twin, encoder_of(tokenizer, PLAIN)
