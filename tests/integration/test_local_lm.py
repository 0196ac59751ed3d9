"""The bundled model, end to end through the scoring seam."""

import numpy as np
import pytest

from ecs_plugins.lm.base import ScoreRequest
from ecs_plugins.lm.prompts import PromptTemplate
from ecs_plugins.lm.runtime import encode_request
from ecs_plugins.lm.scoring.profile import ScoringPath

pytestmark = pytest.mark.model

VALUES = {"context": "", "question": "Where does Ann live?", "answer": "Paris"}
PASSAGES = ("Ann moved to Paris in 2019.", "Bob likes green tea.", "Ann lives in Rome.")


def asked(lm):
    template = PromptTemplate()
    return ScoreRequest(
        template.prefix(lm.layout, VALUES),
        ((), *(template.candidate(passage) for passage in PASSAGES)),
        (
            template.continuation(lm.layout, VALUES),
            template.continuation(lm.layout, {**VALUES, "answer": "Rome"}),
        ),
    )


def test_evidence_raises_the_log_probability_of_its_own_answer(bundled_lm) -> None:
    (result,) = bundled_lm.score([asked(bundled_lm)])
    base, paris, tea, rome = ([c[0].sum for c in row] for row in result.scores)
    assert paris[0] - base[0] > 2
    assert rome[1] - base[1] > 2
    assert paris[0] > tea[0]
    assert rome[0] < paris[0]


def test_the_fast_path_equals_the_reference(bundled_lm) -> None:
    runtime = bundled_lm.warmup()._load()
    request = encode_request(runtime.encoder, asked(bundled_lm))
    everything = range(len(request.candidates))
    wanted, _ = runtime.engine.run(ScoringPath.REFERENCE, request, everything)
    got, _ = runtime.engine.run(ScoringPath.CASCADE, request, everything)
    assert max(np.abs(wanted[key] - got[key]).max() for key in wanted) < 1e-4


def test_it_reads_the_answer_off_a_passage(bundled_lm) -> None:
    (reply,) = bundled_lm.generate(
        [PromptTemplate().prompt(bundled_lm.layout, PASSAGES[0], VALUES)], max_new_tokens=16
    )
    assert "Paris" in reply.text
    assert reply.finish_reason == "stop"
