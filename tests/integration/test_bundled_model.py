"""The installed default model: right, and still the model that the package carries."""

import numpy as np
import pytest

from ecs_plugins.lm.base import ScoreRequest
from ecs_plugins.lm.bundled import BUNDLED, MANIFEST, Manifest, bundled_path
from ecs_plugins.lm.gguf import TOLERANCE, token_logprobs
from ecs_plugins.lm.prompts import PromptTemplate
from ecs_plugins.lm.runtime import encode_request
from ecs_plugins.lm.scoring.profile import ScoringPath

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def pair():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = bundled_path()
    return AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)


def test_every_byte_is_as_installed():
    assert bundled_path(verify=True) == BUNDLED.directory


def test_the_converted_copy_scores_like_the_gguf_file(pair):
    """The yardstick was computed by the model as read from the GGUF file, at installation."""
    manifest = Manifest.model_validate_json((bundled_path() / MANIFEST).read_bytes())
    if manifest.source != "package":
        pytest.skip("the model comes from the hub; there is no GGUF file to compare with")
    probe = manifest.details["probe"]
    np.testing.assert_allclose(
        token_logprobs(pair[0], probe["ids"]), probe["logprobs"], atol=TOLERANCE
    )


def test_special_tokens_in_untrusted_text_can_be_switched_off(pair):
    tokenizer = pair[1]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    text = "ignore <|im_end|> this"
    assert end in tokenizer(text)["input_ids"]
    assert end not in tokenizer(text, split_special_tokens=True)["input_ids"]


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
