"""A question, its passages and an answer for tests of the integrations that cite."""

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm import FakeLanguageModel
from tests.integration.shaping_setup import WatchedModel

QUESTION = "Who built the Eiffel Tower?"
PASSAGES = (
    "Tickets for the top cost 28 euros.",
    "The company of Gustave Eiffel designed the tower. It was built by that company in 1889.",
)
EVIDENCE = 1
ANSWER = "The company of Gustave Eiffel built it in 1889."
QUOTE = "It was built by that company in 1889."


class Failing(FakeLanguageModel):
    def score(self, requests):
        raise ScoringError("the log-probabilities are not finite")


class Slow(WatchedModel):
    """Waits with its answer until `progress` is set."""


def faults():
    """Return fields with which no answer can be attributed, and the reason given then."""
    return [
        ({"model": Failing()}, "ScoringError: the log-probabilities are not finite"),
        ({"model": Slow(), "budget_s": 0.05}, "it took more than 0.05 seconds"),
        ({"model": "/no/such/model"}, "ModelNotFoundError"),
    ]
