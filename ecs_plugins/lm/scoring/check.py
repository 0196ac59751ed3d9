"""Self-check of a scoring path: its log-probabilities are compared with the reference.

A wrong shortcut raises nothing, it returns wrong numbers. So each path scores a request that has
every trait that a path can get wrong, and compares the result with plain forwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from ecs_plugins.errors import ModelError, ScoringError
from ecs_plugins.lm.scoring.packs import DEFAULT_TOKEN_BUDGET, TokenBudget
from ecs_plugins.lm.scoring.prefix import PrefixTree
from ecs_plugins.lm.scoring.profile import PACKED, ModelProfile, ScoringPath
from ecs_plugins.lm.scoring.request import Continuation, Ids, Scores, TokenRequest
from ecs_plugins.lm.scoring.runner import Runner, undisturbed

TOKENS = 56
"""Long enough for a prefix that is kept and a passage that is shared."""

_BUDGETS = (32, 16)
"""With the first the prefix of the check is computed in pieces, and its paths share a row. The
second call finds what the first kept, and computes the rest in several packs."""

_ROWS = 768
"""A packed row of the check is longer than every length up to this that the configuration names:
a mask by index does not know of positions that restart."""

LEAST = 6
"""Tokens of the shortest check."""

_LOGITS = 2**26
"""Larger tables of a whole prompt's logits are not made for a check."""


class Checked(Protocol):
    """Parts of an engine that the self-check uses."""

    runner: Runner
    profile: ModelProfile
    cache: PrefixTree

    def run(
        self,
        path: ScoringPath,
        request: TokenRequest,
        candidates: Sequence[int],
        budget: TokenBudget | None = None,
        cache: PrefixTree | None = None,
    ) -> tuple[Scores, int]:
        """Score some candidates on a path; scores, and tokens computed."""
        ...


def failure_of(
    engine: Checked,
    path: ScoringPath,
    threshold: int,
) -> str | None:
    """Return the error of a path for prompts on either side of a length; None if it is right."""
    wanted = threshold + max(48, threshold // 8) if threshold else TOKENS
    length = min(wanted, engine.profile.room(path))
    if length < LEAST:
        return None
    request = request_of(length, vocabulary_of(engine.runner), threshold)
    candidates = range(len(request.candidates))
    whole = max(DEFAULT_TOKEN_BUDGET, 2 * request.tokens)
    if path not in PACKED:
        return _difference(engine, path, request, candidates, [whole])
    if threshold:
        return _difference(engine, path, request, candidates, [whole, whole])
    failure = _difference(engine, path, request, candidates, _BUDGETS)
    rows = _rows_beyond(engine)
    if failure is not None or not rows:
        return failure
    longer = _with_rows(request, rows, vocabulary_of(engine.runner))
    ends = (1, len(longer.candidates) - 1)
    return _difference(engine, path, longer, ends, [whole])


def _rows_beyond(engine: Checked) -> int:
    """Return the longest length up to `_ROWS` that the configuration names."""
    lengths = (engine.profile.window, *engine.profile.thresholds)
    short = [length for length in lengths if length < _ROWS]
    return max(short, default=0)


def _with_rows(
    request: TokenRequest,
    rows: int,
    vocabulary: int,
) -> TokenRequest:
    """Return the request with passages of more than ``rows`` tokens; the last one ends their row.

    A row is laid out by length, and at equal lengths by ids.
    """
    length = len(request.candidates[1])
    starts = range(0, rows + length, length)
    ids = _ids(starts.stop + length, vocabulary)
    others = sorted(ids[start : start + length] for start in starts)
    return replace(request, candidates=(*request.candidates, *others))


def _difference(
    engine: Checked,
    path: ScoringPath,
    request: TokenRequest,
    compared: Sequence[int],
    budgets: Sequence[int],
) -> str | None:
    """Return the error of a path for some candidates; None if it agrees with the reference.

    A call is made with every token budget, and what one keeps is there for the next.
    """
    everything = range(len(request.candidates))
    longest = max(request.length(candidate) for candidate in everything)
    # The padded path with room for one prompt is a plain forward, but for the head's rows.
    large = longest * vocabulary_of(engine.runner) > _LOGITS
    yardstick = ScoringPath.PADDED if large else ScoringPath.REFERENCE
    wanted, _ = engine.run(yardstick, request, compared, TokenBudget(1))
    cache = PrefixTree(engine.cache.max_bytes, most_tokens=2 * request.tokens)
    answers = []
    try:
        for tokens in budgets:
            scores, _ = engine.run(path, request, everything, TokenBudget(tokens), cache)
            answers.append(scores)
    except ScoringError as refusal:
        return str(refusal)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as failure:
        return f"the model cannot be called this way ({type(failure).__name__}: {failure})"
    errors = np.concatenate(list(_errors(wanted, answers)))
    # Rounding to 16 bits makes single tokens noisy; a wrong path is wrong on average.
    exact = engine.runner.dtype == torch.float32
    error = float(errors.max() if exact else errors.mean())
    tolerance = _tolerance(engine.runner)
    if error <= tolerance:
        return None
    return (
        f"its self-check against the reference is off by {error:.2g} nats per token "
        f"for prompts of up to {longest} tokens (tolerance {tolerance:g})"
    )


def _errors(
    wanted: Scores,
    answers: Iterable[Scores],
) -> Iterable[np.ndarray]:
    for answer in answers:
        for key, logprobs in wanted.items():
            yield np.abs(logprobs - answer[key])


def require_causal(runner: Runner) -> None:
    """Refuse a model in which a later token changes the prediction of an earlier one.

    Raises:
        ModelError: It is not causal, or tokens and rows of logits do not correspond.
    """
    if _rounds_by_call(runner):
        raise ModelError(
            f"{runner.name} cannot score: its dynamically quantised layers round every token by "
            "the largest number of a whole call, so that what comes later changes what came "
            "before. Give the model as it was before quantize_dynamic; in dtype='bfloat16' it "
            "takes half of the memory"
        )
    ids = _ids(10, vocabulary_of(runner))
    with undisturbed(runner.device, runner.dtype):
        fed = runner.ids([[*ids[:-2], last] for last in ids[-2:]])
        logits = runner.model(input_ids=fed).logits
        if logits.shape[1] != fed.shape[1]:
            raise ModelError(
                f"{runner.name} cannot score: it returned {logits.shape[1]} rows of logits for "
                f"{fed.shape[1]} tokens, as with the virtual tokens of prompt tuning. Use the "
                "model without them, or an adapter of another kind, such as LoRA"
            )
        one, other = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    difference = float((one - other).abs().mean())
    if difference > 10 * _tolerance(runner):
        if runner.model.training:
            raise ModelError(
                f"{runner.name} is in training mode, in which its dropout changes every score: "
                "call model.eval() first"
            )
        raise ModelError(
            f"{runner.name} is not a causal language model: a later token changes its "
            "earlier predictions. Use a model made for text generation."
        )


def _rounds_by_call(runner: Runner) -> bool:
    """Return True if some layer chooses the scale of its rounding by all tokens of a call."""
    kinds = {type(module).__module__ for module in runner.model.modules()}
    return any(kind.startswith("torch.ao.nn.quantized.dynamic") for kind in kinds)


def vocabulary_of(runner: Runner) -> int:
    """Return the number of tokens of the vocabulary."""
    return int(runner.model.config.get_text_config().vocab_size)


def _tolerance(runner: Runner) -> float:
    """Return the largest accepted difference from the reference, in nats per token.

    On a processor that is a third of 1e-4, which holds for all scores: the check has few tokens,
    and the largest difference of many is larger.
    """
    if runner.dtype in (torch.float32, torch.float64):
        return 3.3e-5 if runner.device.type == "cpu" else 1e-3
    return 0.05 if runner.dtype == torch.float16 else 0.1


def _ids(number: int, vocabulary: int) -> Ids:
    """Return varied, repeatable ids, without the control tokens at the front of a vocabulary."""
    low = min(300, vocabulary // 4)
    draw = np.random.default_rng(0)
    ids = draw.integers(low, vocabulary, size=number)
    return tuple(ids.tolist())


def request_of(
    length: int,
    vocabulary: int,
    threshold: int,
) -> TokenRequest:
    """Make a request with every trait that a path can get wrong, of at most ``length`` tokens.

    Three of its passages begin alike, so that a path branches off within another one.

    Args:
        length: Tokens of the longest prompt.
        vocabulary: Ids to draw from.
        threshold: Prompts end on either side of this length, if it is not 0.
    """
    if threshold:
        tail = -(-length // 8)
        before = threshold // 2
        cuts = (length - threshold - 1, length - threshold + 1)
    else:
        tail = -(-length // 16)
        before = length - length // 3 - tail
        cuts = (1, length // 3 - 3)
    ids = _ids(length, vocabulary)
    passage = ids[before:-tail]
    shorter = [passage[:-less] for less in cuts if 0 < less < len(passage)]
    continuation = Continuation(ids[-tail:], ((0, 1), (1, tail)))
    return TokenRequest(
        prefix=ids[:before],
        candidates=((), passage, *shorter),
        continuations=(continuation,),
        name="the self-check",
    )
