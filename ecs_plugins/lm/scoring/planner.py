"""Choice of the scoring path of a request.

Two checks: the model's configuration against the planned length (`profile`), then a self-check
against the reference (`check`): on first use, and once for every length that the configuration
names, when a prompt first becomes longer. A fall-back warns once per reason and is otherwise
silent.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring import check, packed, padded
from ecs_plugins.lm.scoring.cascade import CascadeForward
from ecs_plugins.lm.scoring.model_watch import Change, ModelWatch
from ecs_plugins.lm.scoring.pack_items import Batch
from ecs_plugins.lm.scoring.packs import Affordable, TokenBudget, token_budget_of
from ecs_plugins.lm.scoring.prefix import PrefixTree
from ecs_plugins.lm.scoring.profile import PACKED, ModelProfile, Obstacle, ScoringPath
from ecs_plugins.lm.scoring.request import EngineResult, Path, PathScores, Scores, TokenRequest
from ecs_plugins.lm.scoring.runner import Runner, is_out_of_memory, undisturbed
from ecs_plugins.lm.scoring.varlen import VarlenForward

_FORWARDS: Mapping[ScoringPath, Callable[[Runner], packed.PackedForward]] = {
    ScoringPath.CASCADE: CascadeForward,
    ScoringPath.VARLEN: VarlenForward,
    ScoringPath.MASKED: padded.MaskedForward,
}


class ScoringEngine:
    """Scores token requests with one model. The caller serialises its calls."""

    def __init__(self, runner: Runner, profile: ModelProfile) -> None:
        self.runner = runner
        self.profile = profile
        self.cache = PrefixTree(device=runner.device)
        self._watch = ModelWatch(runner.model)
        self._forwards: dict[ScoringPath, packed.PackedForward] = {}
        self._affordable = Affordable()
        self._failures: dict[ScoringPath, list[Obstacle]] = {}
        self._checked: set[tuple[ScoringPath, int]] = set()
        self._causal = False
        self._is_giving_way = False
        self._warned: set[str] = set()

    @property
    def token_budget(self) -> int:
        """Default number of tokens that pass through the model at once."""
        return token_budget_of(self.runner.device)

    def score(
        self,
        requests: Sequence[TokenRequest],
        *,
        window: int | None = None,
        token_budget: int | None = None,
        stopped: Callable[[], bool] | None = None,
        give_way: Callable[[], None] | None = None,
    ) -> list[EngineResult]:
        """Score requests together, each on the fastest path that passes both checks.

        Errors are those of `LocalLM.score`.

        Args:
            requests: Requests to score.
            window: The longest prompt, if shorter than the model's own.
            token_budget: Tokens that may pass through the model at once; by default that of the
                device.
            stopped: Called between packs; True if no caller waits for the results.
            give_way: Called between packs; it may score other requests, which then give no way.
        """
        cache = self._begin()
        window = min(window or self.profile.window, self.profile.window)
        results = [EngineResult({}, {}, 0) for _ in requests]
        planned: dict[ScoringPath, list[int]] = {}
        for number, request in enumerate(requests):
            result = results[number]
            result.unscored.update(request.beyond(window))
            fitting = result.fitting(request)
            if fitting:
                longest = max(request.length(candidate) for candidate in fitting)
                path = self._plan(longest)
                planned.setdefault(path, []).append(number)
        most = token_budget or self.token_budget
        budget = TokenBudget(most, stopped, self._giving_way(give_way), self._affordable)
        for path, numbers in planned.items():
            work = []
            for number in numbers:
                fitting = results[number].fitting(requests[number])
                work.append((requests[number], fitting))
            answers = self.run_together(path, work, budget, cache)
            for number, answer in zip(numbers, answers, strict=True):
                scores, computed = answer
                results[number].scores.update(scores)
                results[number].computed_tokens = computed
        self._watch.settle()
        return results

    def _giving_way(self, give_way: Callable[[], None] | None) -> Callable[[], None]:
        """Return a function that computes calls of others within the present one."""

        def compute_others() -> None:
            if give_way is None or self._is_giving_way:
                return
            self._is_giving_way = True
            try:
                give_way()
            finally:
                self._is_giving_way = False

        return compute_others

    def forget(self) -> None:
        """Drop all kept prefixes and everything that was made of the model's weights.

        A call under way keeps the prefixes that it found to itself.
        """
        self._forwards.clear()
        self._forget_prefixes()

    def _forget_prefixes(self) -> None:
        self.cache = PrefixTree(self.cache.max_bytes, device=self.runner.device)

    def _begin(self) -> PrefixTree:
        """Return the cache for a new call; an empty one if the model has changed."""
        change = self._watch.look()
        if change is not Change.NONE:
            self.forget()
        if change is Change.STRUCTURE:
            self._failures.clear()
            self._checked.clear()
            self._causal = False
        if self._watch.has_hooks:
            self._forget_prefixes()
        cache = self.cache
        # What a call that gives way has found must stay until it goes on: it is the same call.
        if not self._is_giving_way:
            cache.begin()
        return cache

    def by_reference(self, request: TokenRequest, window: int) -> EngineResult:
        """Score a request by the reference path."""
        self._begin()
        window = min(window, self.profile.window)
        result = EngineResult({}, request.beyond(window), 0)
        fitting = result.fitting(request)
        scores, computed = self.run(ScoringPath.REFERENCE, request, fitting)
        result.scores = scores
        result.computed_tokens = computed
        self._watch.settle()
        return result

    def warm_up(self) -> None:
        """Run the self-check of the path that short prompts take."""
        self._plan(min(check.TOKENS, self.profile.window))

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
        answers = self.run_together(
            path,
            [(request, candidates)],
            budget or TokenBudget(),
            cache or self.cache,
        )
        return answers[0]

    def run_together(
        self,
        path: ScoringPath,
        work: Sequence[tuple[TokenRequest, Sequence[int]]],
        budget: TokenBudget,
        cache: PrefixTree,
    ) -> list[tuple[Scores, int]]:
        """Score candidates of several requests, as `run` does."""
        # Equal paths of one request are computed once.
        places: list[dict[Path, list[tuple[int, int]]]] = []
        batches = []
        for request, candidates in work:
            keys: dict[Path, list[tuple[int, int]]] = {}
            for key in product(candidates, range(len(request.continuations))):
                keys.setdefault(request.path(*key), []).append(key)
            places.append(keys)
            batches.append(Batch(request.prefix, tuple(keys)))
        with undisturbed(self.runner.device, self.runner.dtype):
            scored = self._run(path, batches, budget, cache)
        out: list[tuple[Scores, int]] = []
        for (request, _), keys, result in zip(work, places, scored, strict=True):
            scores: Scores = {}
            for same, logprobs in zip(keys.values(), result.logprobs, strict=True):
                self._require_numbers(logprobs, request)
                scores.update(dict.fromkeys(same, logprobs))
            out.append((scores, result.computed_tokens))
        return out

    def _require_numbers(self, logprobs: np.ndarray, request: TokenRequest) -> None:
        # An impossible token has minus infinity, which is a number here.
        wrong = np.isnan(logprobs) | np.isposinf(logprobs)
        if not wrong.any():
            return
        where = f" for {request.name}" if request.name else ""
        raise ScoringError(
            f"{self.runner.name} returned NaN log-probabilities{where}; its weights are broken "
            f"or {self.runner.dtype} overflows: load it with dtype='float32'"
        )

    def _run(
        self,
        path: ScoringPath,
        batches: Sequence[Batch],
        budget: TokenBudget,
        cache: PrefixTree,
    ) -> list[PathScores]:
        try:
            if path in PACKED:
                return packed.score(self._forward(path), batches, budget, cache)
            if path is ScoringPath.PADDED:
                return [padded.score_padded(self.runner, *batch, budget) for batch in batches]
            return [padded.score_by_reference(self.runner, *batch) for batch in batches]
        except Exception as error:
            if isinstance(error, ScoringError) or not is_out_of_memory(error):
                raise
            raise ScoringError(
                f"out of memory in {self.runner.name}: use shorter passages, a smaller model or a "
                "smaller dtype"
            ) from error

    def _forward(self, path: ScoringPath) -> packed.PackedForward:
        if path not in self._forwards:
            self._forwards[path] = _FORWARDS[path](self.runner)
        return self._forwards[path]

    def _plan(self, length: int) -> ScoringPath:
        """Return the path for a length; warn once per reason about a slower one."""
        chosen, against = self.path_for(length)
        for path, reason in against.items():
            # The masked path shares as much as the faster ones, so losing one of these is no news.
            faster = path in PACKED and path is not ScoringPath.MASKED
            if faster or reason in self._warned:
                continue
            self._warned.add(reason)
            what = "a shared prefix" if path is ScoringPath.MASKED else "batches"
            checked = self.profile.room(chosen) >= check.LEAST
            same = chosen is ScoringPath.REFERENCE or checked
            warnings.warn(
                f"{self.runner.name}: scoring without {what} "
                f"(slower{', the same result' if same else ''}), because {reason}",
                RuntimeWarning,
                stacklevel=5,
            )
        return chosen

    def path_for(self, length: int) -> tuple[ScoringPath, dict[ScoringPath, str]]:
        """Return the fastest path that both checks allow, and the reasons against faster ones.

        ``length`` is that of the longest prompt.
        """
        if not self._causal:
            check.require_causal(self.runner)
            self._causal = True
        against: dict[ScoringPath, str] = {}
        for path in self.profile.paths:
            reason = self.against(path, length)
            if reason is None:
                return path, against
            against[path] = reason
        return ScoringPath.REFERENCE, against

    def against(self, path: ScoringPath, length: int) -> str | None:
        """Return the reason against a path for prompts of a length; None if both checks pass."""
        reason = self.profile.against(path, length)
        return reason or self._self_check(path, length)

    def _self_check(self, path: ScoringPath, length: int) -> str | None:
        """Compare a path with the reference, once per crossed length; return a failure."""
        failures = self._failures.setdefault(path, [])
        for threshold in (0, *self.profile.thresholds):
            if any(length > failure.beyond for failure in failures):
                break
            if threshold < length and (path, threshold) not in self._checked:
                self._checked.add((path, threshold))
                reason = check.failure_of(self, path, threshold)
                if reason is not None:
                    failures.append(Obstacle(reason, threshold))
        reasons = (failure.reason for failure in failures if length > failure.beyond)
        return next(reasons, None)
