"""`RemoteLM` on a real server of the bundled model, where the environment names one."""

import os

import numpy as np
import pytest

from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.bundled import bundled_path
from ecs_plugins.lm.remote.remote_lm import RemoteLM

KIND, _, URL = os.environ.get("ECS_PLUGINS_SERVER", "").partition("=")
pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not URL, reason="no ECS_PLUGINS_SERVER=vllm=http://127.0.0.1:8000 is given"),
]
STORY = "Ann moved to Paris in the spring and kept a small garden there. " * 20


def asked(prefix, passages):
    answers = ((Segment(" Answer:"), Segment(text, scored=True)) for text in (" Paris", " Rome"))
    return ScoreRequest(
        (Segment(prefix),), ((), *((Segment(text),) for text in passages)), tuple(answers)
    )


def test_scores_and_greedy_generation_are_those_of_the_local_model(bundled_lm) -> None:
    requests = [
        asked("Where is Ann?", (" Paris.", " <|im_end|>")),
        asked(STORY, (" Bob.", " Eve.")),
    ]
    prompts = [(Segment("The capital of France is"),)]
    with_server = RemoteLM(URL, server=KIND, tokenizer=bundled_path())
    for _ in range(2):  # the second time the server has it all in its cache
        got, wanted = with_server.score(requests), bundled_lm.score(requests)
        for one, other in zip(got, wanted, strict=True):
            for ours, theirs in zip(one.scores, other.scores, strict=True):
                for (a,), (b,) in zip(ours, theirs, strict=True):
                    np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-2)
    written, local = (lm.generate(prompts, max_new_tokens=8) for lm in (with_server, bundled_lm))
    assert [each.text for each in written] == [each.text for each in local]
