"""A question over 40 passages beside a cross-encoder that reads the same pairs.

The cross-encoder has the shape of MiniLM-L6 and random weights: what it computes means nothing, and
takes as long. It computes in float32, all pairs as one batch without padding, which is its best.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.engine.concurrency import words
from benchmarks.engine.measure import ratio_of
from ecs_plugins.lm import LocalLM
from ecs_plugins.shaping import ContextShaper

if TYPE_CHECKING:
    from benchmarks.engine.measure import Log

PASSAGES = 40
PASSAGE_TOKENS = 60
_QUESTION_WORDS = 10
_VOCABULARY = 30522
_MARKS = 3
"""Special tokens of a pair."""


def beside_encoder(
    *, repeats: int, quick: bool, log: Log, dtype: str = "float32", model: LocalLM | None = None
) -> dict[str, Any]:
    """Ask a first and a later question over passages that are new in every repeat.

    Then a first one of which the better half by the ranker is scored (``pool_size``).

    Returns:
        JSON: CPU seconds per repeat of the four, and ratios to the cross-encoder's.
    """
    number, length = (4, 12) if quick else (PASSAGES, PASSAGE_TOKENS)
    model = model or LocalLM.bundled(dtype=dtype, device="cpu")
    shaper = ContextShaper(model)
    halving = ContextShaper(model, {"pool_size": max(1, number // 2)})
    encoder = _encoder()
    draw = random.Random(0)
    shaper.shape(_question(draw), [words(draw, length), words(draw, length)])
    found: dict[str, list[float]] = {"encoder": [], "first": [], "later": [], "half": []}
    for repeat in range(repeats):
        passages = [_passage(draw, model, length) for _ in range(number)]
        question, another = _question(draw), _question(draw)
        (asked,) = model.count_tokens([question])
        ids = torch.randint(1000, _VOCABULARY, (number, asked + length + _MARKS))
        found["encoder"].append(_seconds(partial(_encode, encoder, ids)))
        found["first"].append(_seconds(partial(shaper.shape, question, passages)))
        found["later"].append(_seconds(partial(shaper.shape, another, passages)))
        model.clear_cache()
        found["half"].append(_seconds(partial(halving.shape, question, passages)))
        told = {name: round(values[-1], 2) for name, values in found.items()}
        log(f"{model.placement}, repeat {repeat + 1}/{repeats}: {told}")
    ours = [name for name in found if name != "encoder"]
    ratios = {name: asdict(ratio_of(found["encoder"], found[name])) for name in ours}
    return {"seconds": found, "ratios": ratios, "passages": number, "tokens": length}


def _question(draw: random.Random) -> str:
    return f"{words(draw, _QUESTION_WORDS).capitalize()}?"


def _passage(draw: random.Random, model: LocalLM, length: int) -> str:
    """Random words that are so many tokens."""
    chosen = words(draw, length).split()
    while model.count_tokens([" ".join(chosen)])[0] > length:
        chosen.pop()
    return f"{' '.join(chosen)}."


def _encoder() -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=_VOCABULARY,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    config.num_labels = 1
    encoder = BertForSequenceClassification(config)
    encoder.train(mode=False)
    return encoder


def _encode(encoder: BertForSequenceClassification, ids: torch.Tensor) -> None:
    with torch.inference_mode():
        encoder(ids)


def _seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the process."""
    began = time.process_time()
    work()
    return time.process_time() - began
