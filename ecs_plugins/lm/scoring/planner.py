"""Which scoring path a request takes, and whether that path can be trusted.

Two nets: the model's configuration against the planned length (`profile`), then a self-check
against the reference on first use. A fall-back warns once per reason and is otherwise silent.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import torch

from ecs_plugins.errors import ModelError, ScoringError
from ecs_plugins.lm.scoring import padded, reference, shared_prefix
from ecs_plugins.lm.scoring.budget import DEFAULT_TOKEN_BUDGET, TokenBudget
from ecs_plugins.lm.scoring.profile import ModelProfile
from ecs_plugins.lm.scoring.request import (
    Continuation,
    Ids,
    Logprobs,
    Path,
    Scored,
    TokenRequest,
    path_of,
)
from ecs_plugins.lm.scoring.runner import Runner, is_out_of_memory

_CHECK_TOKENS = 24


class ScoringPath(StrEnum):
    """The ways to one result, fastest first."""

    SHARED_PREFIX = "shared_prefix"
    PADDED = "padded"
    REFERENCE = "reference"


class ScoringEngine:
    """Scores token requests with one model. The caller serialises its calls.

    Args:
        runner: The model.
        profile: What its configuration allows.
    """

    def __init__(self, runner: Runner, profile: ModelProfile) -> None:
        self.runner = runner
        self.profile = profile
        self._affordable = sys.maxsize
        self._failures: dict[ScoringPath, str] = {}
        self._checked: set[ScoringPath] = set()
        self._causal = False
        self._warned: set[str] = set()

    def score(
        self,
        request: TokenRequest,
        *,
        window: int | None = None,
        token_budget: int = DEFAULT_TOKEN_BUDGET,
    ) -> EngineResult:
        """Score one request on the best path that can be trusted.

        Args:
            request: What to score.
            window: The longest prompt, if shorter than the model's own.
            token_budget: Tokens that may pass through the model at once.

        Raises:
            InvalidInputError: The prefix leaves no room for a continuation.
            ScoringError: The model's numbers are not finite, or memory does not suffice for a
                single path.
            ModelError: The model is not causal.
        """
        window = min(window or self.profile.window, self.profile.window)
        request.require_room(window)
        unscored = _beyond_window(request, window)
        fitting = [k for k in range(len(request.candidates)) if k not in unscored]
        if not fitting:
            return EngineResult({}, unscored, 0)
        path = self._plan(max(request.length(k) for k in fitting))
        budget = TokenBudget(min(token_budget, self._affordable))
        scores, computed = self.run(path, request, fitting, budget)
        if budget.shrunk:
            self._affordable = budget.tokens
        return EngineResult(scores, unscored, computed)

    def warm_up(self) -> None:
        """Run the self-check of the path that short prompts take."""
        self._plan(min(_CHECK_TOKENS, self.profile.window))

    def run(
        self,
        path: ScoringPath,
        request: TokenRequest,
        candidates: Sequence[int],
        budget: TokenBudget | None = None,
    ) -> tuple[dict[tuple[int, int], Logprobs], int]:
        """Score some candidates on a given path, without planning or checking it.

        Returns:
            Log-probabilities by (candidate, continuation), over its scored tokens, and the
            number of tokens computed.
        """
        where: dict[Path, list[tuple[int, int]]] = {}
        for k in candidates:
            for m, continuation in enumerate(request.continuations):
                key = path_of(request.candidates[k], continuation)
                where.setdefault(key, []).append((k, m))
        paths = list(where)
        result = self._run(path, request.prefix, paths, budget or TokenBudget())
        for logprobs in result.logprobs:
            if np.isnan(logprobs).any() or np.isposinf(logprobs).any():
                raise ScoringError(
                    f"{self.runner.name} returned NaN log-probabilities"
                    f"{f' for {request.name}' if request.name else ''}; its weights are broken "
                    f"or {self.runner.dtype} overflows: load it with dtype='float32'"
                )
        scores = {
            key: logprobs
            for path_, logprobs in zip(paths, result.logprobs, strict=True)
            for key in where[path_]
        }
        return scores, result.computed_tokens

    def _run(
        self, path: ScoringPath, prefix: Ids, paths: Sequence[Path], budget: TokenBudget
    ) -> Scored:
        with torch.inference_mode():
            try:
                if path is ScoringPath.SHARED_PREFIX:
                    return shared_prefix.score(self.runner, prefix, paths, budget)
                if path is ScoringPath.PADDED:
                    return padded.score(self.runner, prefix, paths, budget)
                return reference.score(self.runner, prefix, paths)
            except Exception as error:
                if is_out_of_memory(error) and not isinstance(error, ScoringError):
                    raise ScoringError(
                        f"out of memory in {self.runner.name}: use shorter passages, a smaller "
                        "model or a smaller dtype"
                    ) from error
                raise

    def _plan(self, length: int) -> ScoringPath:
        """The fastest path that configuration and self-check allow at this length."""
        self._check_causal()
        for path in (ScoringPath.SHARED_PREFIX, ScoringPath.PADDED):
            reason = self._against(path, length) or self._self_check(path)
            if reason is None:
                return path
            if reason not in self._warned:
                self._warned.add(reason)
                warnings.warn(
                    f"{self.runner.name}: scoring without {path.replace('_', ' ')} (slower, the "
                    f"same result), because {reason}",
                    RuntimeWarning,
                    stacklevel=5,
                )
        return ScoringPath.REFERENCE

    def _against(self, path: ScoringPath, length: int) -> str | None:
        if path is ScoringPath.SHARED_PREFIX:
            return self.profile.against_sharing(length)
        return self.profile.against_batching(length)

    def _self_check(self, path: ScoringPath) -> str | None:
        """Hold a path to the reference, once; why it failed, if it did."""
        if path in self._checked:
            return self._failures.get(path)
        length = _CHECK_TOKENS
        while length >= 6 and self._against(path, length):
            length //= 2
        if length >= 6:
            error = self._error_of(path, _check_request(length, self._vocabulary()))
            if error > (tolerance := _tolerance(self.runner)):
                self._failures[path] = (
                    f"its self-check against the reference is off by {error:.2g} nats per token "
                    f"(tolerance {tolerance:g})"
                )
        self._checked.add(path)
        return self._failures.get(path)

    def _error_of(self, path: ScoringPath, request: TokenRequest) -> float:
        everything = range(len(request.candidates))
        wanted, _ = self.run(ScoringPath.REFERENCE, request, everything)
        try:
            got, _ = self.run(path, request, everything)
        except (ScoringError, RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            # A model that cannot be called this way at all.
            return float("inf")
        errors = np.concatenate([np.abs(wanted[key] - got[key]) for key in wanted])
        # Rounding to 16 bits makes single tokens noisy; a wrong path is wrong on average.
        return float(errors.max() if self.runner.dtype == torch.float32 else errors.mean())

    def _check_causal(self) -> None:
        """A later token must not change what an earlier one is predicted with."""
        if self._causal:
            return
        ids = _check_ids(10, self._vocabulary())
        logits = []
        with torch.inference_mode():
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


class EngineResult:
    """Log-probabilities by (candidate, continuation), reasons by unscored candidate, tokens."""

    __slots__ = ("computed_tokens", "scores", "unscored")

    def __init__(
        self,
        scores: dict[tuple[int, int], Logprobs],
        unscored: dict[int, str],
        computed_tokens: int,
    ) -> None:
        self.scores = scores
        self.unscored = unscored
        self.computed_tokens = computed_tokens


def _beyond_window(request: TokenRequest, window: int) -> dict[int, str]:
    return {
        k: f"{request.length(k)} tokens exceed the model's window of {window}"
        for k in range(len(request.candidates))
        if request.length(k) > window
    }


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


def _check_request(length: int, vocabulary: int) -> TokenRequest:
    """Every trait that a path can get wrong, in prompts of at most ``length`` tokens."""
    ids = tuple(_check_ids(2 * length, vocabulary))
    third = length // 3
    prefix, rest = ids[:third], ids[third:]
    head, tails = rest[:1], (rest[1:third], rest[third : third + 1])
    return TokenRequest(
        prefix=prefix,
        candidates=((), rest[-third:], rest[-third : -third // 2], rest[-2 * third : -third]),
        continuations=tuple(
            Continuation(head + tail, ((0, 1), (1, 1 + len(tail)))) for tail in tails
        ),
        name="the self-check",
    )
