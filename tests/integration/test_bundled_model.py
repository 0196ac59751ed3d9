"""The installed default model: right, and still the model that the package carries."""

import numpy as np
import pytest

from ecs_plugins.lm._gguf import TOLERANCE, token_logprobs
from ecs_plugins.lm._model_store import Manifest
from ecs_plugins.lm.bundled import BUNDLED, bundled_path, verify

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def pair():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = bundled_path()
    return AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)


def test_every_byte_is_as_installed():
    assert verify() == BUNDLED.directory


def test_the_converted_copy_scores_like_the_gguf_file(pair):
    """The yardstick was computed by the model as read from the GGUF file, at installation."""
    manifest = Manifest.read(bundled_path())
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
