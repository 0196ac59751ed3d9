"""Which scoring path a request takes, and whether that path can be trusted.

Two nets: the model's configuration against the planned length (`profile`), then a self-check
against the reference: on first use, and once for every length that the configuration names, when
a prompt first becomes longer. A fall-back warns once per reason and is otherwise silent.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch

from ecs_plugins.errors import ModelError, ScoringError
from ecs_plugins.lm.scoring import packed, plain
from ecs_plugins.lm.scoring.cascade import CascadeForward
from ecs_plugins.lm.scoring.prefix import DEFAULT_CACHE_BYTES, PrefixTree
from ecs_plugins.lm.scoring.profile import ModelProfile, Obstacle, ScoringPath
from ecs_plugins.lm.scoring.request import (
    Continuation,
    EngineResult,
    Path,
    PathScores,
    Scores,
    TokenRequest,
)
from ecs_plugins.lm.scoring.runner import (
    DEFAULT_TOKEN_BUDGET,
    Runner,
    TokenBudget,
    is_out_of_memory,
    undisturbed,
)

_CHECK_TOKENS = 72
"""Long enough for a prefix that is kept and a passage that is shared."""

_CHECK_BUDGETS = (30, DEFAULT_TOKEN_BUDGET)
"""The first is so small that the prefix of the check is computed in pieces and its paths in several
packs; with the second they share a row, or a batch."""

_CHECK_ROWS = 768
"""The check's packed row becomes longer than every length up to this that the configuration names:
a mask by index does not know of positions that restart."""

_LEAST = 6
"""Tokens of the shortest check."""

_CHECK_LOGITS = 2**26
"""Larger tables of a whole prompt's logits are not made for a check."""

_PACKED = (ScoringPath.CASCADE, ScoringPath.MASKED)


class ScoringEngine:
    """Scores token requests with one model. The caller serialises its calls."""

    def __init__(self, runner: Runner, profile: ModelProfile) -> None:
        self.runner = runner
        self.profile = profile
        self.cache = PrefixTree(DEFAULT_CACHE_BYTES)
        self._weights = runner.marks()
        self._forwards: dict[ScoringPath, packed.PackedForward] = {}
        self._affordable = sys.maxsize
        self._failures: dict[ScoringPath, list[Obstacle]] = {}
        self._checked: set[tuple[ScoringPath, int]] = set()
        self._causal = False
        self._warned: set[str] = set()

    def score(
        self,
        requests: Sequence[TokenRequest],
        *,
        window: int | None = None,
        token_budget: int = DEFAULT_TOKEN_BUDGET,
        stopped: Callable[[], bool] | None = None,
    ) -> list[EngineResult]:
        """Score requests together, each on the best path that can be trusted.

        Errors are those of `LocalLM.score`.

        Args:
            requests: What to score.
            window: The longest prompt, if shorter than the model's own.
            token_budget: Tokens that may pass through the model at once.
            stopped: Asked between packs whether nobody waits for the results any more.
        """
        cache = self._begin()
        window = min(window or self.profile.window, self.profile.window)
        results = [EngineResult({}, {}, 0) for _ in requests]
        planned: dict[ScoringPath, list[int]] = {}
        for n, request in enumerate(requests):
            results[n].unscored.update(request.beyond(window))
            fitting = results[n].fitting(request)
            if fitting:
                path = self._plan(max(request.length(k) for k in fitting))
                planned.setdefault(path, []).append(n)
        budget = TokenBudget(min(token_budget, self._affordable), stopped)
        for path, indices in planned.items():
            work = [(requests[n], results[n].fitting(requests[n])) for n in indices]
            for n, (scores, computed) in zip(
                indices, self.run_together(path, work, budget, cache), strict=True
            ):
                results[n].scores.update(scores)
                results[n].computed_tokens = computed
        if budget.shrunk:
            self._affordable = budget.tokens
        return results

    def forget(self) -> None:
        """Drop all kept prefixes; a call under way keeps what it found to itself."""
        self.cache = PrefixTree(self.cache.max_bytes)

    def _begin(self) -> PrefixTree:
        """What a new call finds and keeps its prefixes in: none of weights that have changed."""
        weights = self.runner.marks()
        if weights != self._weights:
            self._weights = weights
            self._forwards.clear()
            self.forget()
        cache = self.cache
        cache.begin()
        return cache

    def by_reference(self, request: TokenRequest, window: int) -> EngineResult:
        """Score a request by the reference path."""
        result = EngineResult({}, request.beyond(min(window, self.profile.window)), 0)
        result.scores, result.computed_tokens = self.run(
            ScoringPath.REFERENCE, request, result.fitting(request)
        )
        return result

    def warm_up(self) -> None:
        """Run the self-check of the path that short prompts take."""
        self._plan(min(_CHECK_TOKENS, self.profile.window))

    def run(
        self,
        path: ScoringPath,
        request: TokenRequest,
        candidates: Sequence[int],
        budget: TokenBudget | None = None,
        cache: PrefixTree | None = None,
    ) -> tuple[Scores, int]:
        """Score some candidates on a given path, without planning or checking it.

        Returns:
            Log-probabilities by (candidate, continuation), over its scored tokens, and the
            number of tokens computed.
        """
        work = [(request, candidates)]
        return self.run_together(path, work, budget or TokenBudget(), cache or self.cache)[0]

    def run_together(
        self,
        path: ScoringPath,
        work: Sequence[tuple[TokenRequest, Sequence[int]]],
        budget: TokenBudget,
        cache: PrefixTree,
    ) -> list[tuple[Scores, int]]:
        """Like `run`, for candidates of several requests."""
        where: list[dict[Path, list[tuple[int, int]]]] = [{} for _ in work]
        batches = []
        for (request, candidates), keys in zip(work, where, strict=True):
            for key in product(candidates, range(len(request.continuations))):
                keys.setdefault(request.path(*key), []).append(key)
            batches.append(packed.Batch(request.prefix, tuple(keys)))
        out: list[tuple[Scores, int]] = []
        with undisturbed(self.runner.device, self.runner.dtype):
            scored = self._run(path, batches, budget, cache)
        for (request, _), keys, result in zip(work, where, scored, strict=True):
            scores: Scores = {}
            for same, logprobs in zip(keys.values(), result.logprobs, strict=True):
                if np.isnan(logprobs).any() or np.isposinf(logprobs).any():
                    raise ScoringError(
                        f"{self.runner.name} returned NaN log-probabilities"
                        f"{f' for {request.name}' if request.name else ''}; its weights are broken "
                        f"or {self.runner.dtype} overflows: load it with dtype='float32'"
                    )
                scores.update(dict.fromkeys(same, logprobs))
            out.append((scores, result.computed_tokens))
        return out

    def _run(
        self,
        path: ScoringPath,
        batches: Sequence[packed.Batch],
        budget: TokenBudget,
        cache: PrefixTree,
    ) -> list[PathScores]:
        try:
            if path in _PACKED:
                return packed.score(self._forward(path), batches, budget, cache)
            if path is ScoringPath.PADDED:
                return [plain.score_padded(self.runner, *batch, budget) for batch in batches]
            return [plain.score_by_reference(self.runner, *batch) for batch in batches]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise ScoringError(
                f"out of memory in {self.runner.name}: use shorter passages, a smaller model or a "
                "smaller dtype"
            ) from error

    def _forward(self, path: ScoringPath) -> packed.PackedForward:
        if path not in self._forwards:
            made = CascadeForward if path is ScoringPath.CASCADE else plain.MaskedForward
            self._forwards[path] = made(self.runner)
        return self._forwards[path]

    def _plan(self, length: int) -> ScoringPath:
        """The path for this length; says once per reason what is slower than it could be."""
        chosen, against = self.path_for(length)
        for path, reason in against.items():
            # The masked path shares as much as the cascade, so losing the cascade is no news.
            if path is not ScoringPath.CASCADE and reason not in self._warned:
                self._warned.add(reason)
                what = "a shared prefix" if path is ScoringPath.MASKED else "batches"
                shown = chosen is ScoringPath.REFERENCE or self.profile.room(chosen) >= _LEAST
                warnings.warn(
                    f"{self.runner.name}: scoring without {what} "
                    f"(slower{', the same result' if shown else ''}), because {reason}",
                    RuntimeWarning,
                    stacklevel=5,
                )
        return chosen

    def path_for(self, length: int) -> tuple[ScoringPath, dict[ScoringPath, str]]:
        """The fastest path that configuration and self-check allow, and what speaks against faster.

        ``length`` is that of the longest prompt.
        """
        self._check_causal()
        against: dict[ScoringPath, str] = {}
        for path in (*_PACKED, ScoringPath.PADDED):
            reason = self.profile.against(path, length) or self._self_check(path, length)
            if reason is None:
                return path, against
            against[path] = reason
        return ScoringPath.REFERENCE, against

    def _self_check(self, path: ScoringPath, length: int) -> str | None:
        """Hold a path to the reference, once per length that is crossed; why it failed, if so."""
        failures = self._failures.setdefault(path, [])
        for threshold in (0, *self.profile.thresholds):
            if any(length > failure.beyond for failure in failures):
                break
            if threshold < length and (path, threshold) not in self._checked:
                self._checked.add((path, threshold))
                reason = self._check(path, threshold)
                if reason is not None:
                    failures.append(Obstacle(reason, threshold))
        return next((f.reason for f in failures if length > f.beyond), None)

    def _check(self, path: ScoringPath, threshold: int) -> str | None:
        """What a path gets wrong for prompts of either side of a length, if anything."""
        wanted = threshold + max(8, threshold // 8) if threshold else _CHECK_TOKENS
        length = min(wanted, self.profile.room(path))
        if length < _LEAST:
            return None
        lengths = (self.profile.window, *self.profile.thresholds)
        rows = max((n for n in lengths if n < _CHECK_ROWS), default=0)
        packs = path in _PACKED and not threshold
        request = _check_request(length, self._vocabulary(), threshold, rows if packs else 0)
        budgets = _CHECK_BUDGETS if packs else (max(DEFAULT_TOKEN_BUDGET, 2 * request.tokens),)
        failures = (self._difference(path, request, tokens) for tokens in budgets)
        return next((failure for failure in failures if failure is not None), None)

    def _difference(self, path: ScoringPath, request: TokenRequest, tokens: int) -> str | None:
        """What a path gets wrong against the reference with a token budget, if anything."""
        everything = range(len(request.candidates))
        longest = max(request.length(k) for k in everything)
        # The padded path with room for one prompt is a plain forward, but for the head's rows.
        large = longest * self._vocabulary() > _CHECK_LOGITS
        yardstick = ScoringPath.PADDED if large else ScoringPath.REFERENCE
        wanted, _ = self.run(yardstick, request, everything, TokenBudget(1))
        cache = PrefixTree(self.cache.max_bytes)
        times = 2 if path in _PACKED else 1  # the second finds what the first kept
        try:
            found = [
                self.run(path, request, everything, TokenBudget(tokens), cache)[0]
                for _ in range(times)
            ]
        except ScoringError as refusal:
            return str(refusal)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as failure:
            return f"the model cannot be called this way ({type(failure).__name__}: {failure})"
        errors = np.concatenate([np.abs(wanted[key] - got[key]) for got in found for key in wanted])
        # Rounding to 16 bits makes single tokens noisy; a wrong path is wrong on average.
        error = float(errors.max() if self.runner.dtype == torch.float32 else errors.mean())
        if error <= (tolerance := _tolerance(self.runner)):
            return None
        return (
            f"its self-check against the reference is off by {error:.2g} nats per token "
            f"for prompts of up to {longest} tokens (tolerance {tolerance:g})"
        )

    def _check_causal(self) -> None:
        """A later token must not change what an earlier one is predicted with."""
        if self._causal:
            return
        ids = _check_ids(10, self._vocabulary())
        logits = []
        with undisturbed(self.runner.device, self.runner.dtype):
            for last in ids[-2:]:
                out = self.runner.model(input_ids=self.runner.ids([*ids[:-2], last])).logits
                logits.append(torch.log_softmax(out[0, :-1].float(), dim=-1))
        difference = float((logits[0] - logits[1]).abs().mean())
        if difference > 10 * _tolerance(self.runner):
            raise ModelError(
                f"{self.runner.name} is not a causal language model: a later token changes its "
                "earlier predictions. Use a model made for text generation."
            )
        self._causal = True

    def _vocabulary(self) -> int:
        return int(self.runner.model.config.get_text_config().vocab_size)


def _tolerance(runner: Runner) -> float:
    """Largest accepted difference from the reference, in nats per token."""
    if runner.dtype in (torch.float32, torch.float64):
        return 1e-4 if runner.device.type == "cpu" else 1e-3
    return 0.05 if runner.dtype == torch.float16 else 0.1


def _check_ids(number: int, vocabulary: int) -> list[int]:
    """Arbitrary, repeatable and varied ids, away from the control tokens at the front."""
    low = min(300, vocabulary // 4)
    draw = np.random.default_rng(0).integers(low, vocabulary, size=number)
    return [int(i) for i in draw]


def _check_request(length: int, vocabulary: int, threshold: int, rows: int) -> TokenRequest:
    """Every trait that a path can get wrong, in prompts of at most ``length`` tokens.

    Args:
        length: Tokens of the longest prompt.
        vocabulary: Ids to draw from.
        threshold: Prompts end on either side of this length, if it is not 0.
        rows: The candidates have at least so many tokens together.
    """
    half, third = length // 2, length // 3
    ids = tuple(_check_ids(2 * length + rows, vocabulary))
    prefix, passage, rest = ids[:half], ids[half : half + third], ids[half + third : 2 * length]
    head, tails = rest[:1], (rest[1 : length - half - third], rest[2:3])
    cut = (length - threshold - 1, length - threshold + 1) if threshold else (-(-third // 6),)
    others = range(2 * length, 2 * length + rows, third)
    return TokenRequest(
        prefix=prefix,
        candidates=(
            (),
            passage,
            *(passage[: third - less] for less in cut if 0 < less < third),
            *(ids[start : start + third] for start in others),
        ),
        continuations=tuple(
            Continuation(head + tail, ((0, 1), (1, 1 + len(tail))))
            for tail in tails[: 1 if threshold > _CHECK_TOKENS else 2]
        ),
        name="the self-check",
    )
