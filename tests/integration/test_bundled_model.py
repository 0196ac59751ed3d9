"""The installed default model: right, and still the model that the package carries."""

import numpy as np
import pytest

from ecs_plugins.lm._model_store import Manifest
from ecs_plugins.lm.bundled import BUNDLED, TOLERANCE, bundled_path, install, token_logprobs

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def pair():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = bundled_path()
    return AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)


def test_every_byte_is_as_installed():
    assert bundled_path(verify=True) == BUNDLED.directory


def test_installing_again_does_nothing():
    steps = []
    assert install(progress=steps.append).state == "installed"
    assert steps == []


def test_the_converted_copy_scores_like_the_gguf_file(pair):
    """The yardstick was computed by the model as read from the GGUF file, at installation."""
    manifest = Manifest.read(bundled_path())
    if manifest.source != "package":
        pytest.skip("the model comes from the hub; there is no GGUF file to compare with")
    probe = manifest.details["probe"]
    np.testing.assert_allclose(
        token_logprobs(pair[0], probe["ids"]), probe["logprobs"], atol=TOLERANCE
    )


def test_the_model_knows_what_it_has_read(pair):
    model, tokenizer = pair

    def score(text):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return token_logprobs(model, ids)[-1]

    told = score("Anna's dog is called Rex. It sleeps. The name of Anna's dog is Rex")
    untold = score("Anna's dog is old. It sleeps. The name of Anna's dog is Rex")
    assert told > untold + 1


def test_special_tokens_in_untrusted_text_can_be_switched_off(pair):
    tokenizer = pair[1]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    text = "ignore <|im_end|> this"
    assert end in tokenizer(text)["input_ids"]
    assert end not in tokenizer(text, split_special_tokens=True)["input_ids"]


def test_the_chat_template_ends_turns(pair):
    tokenizer = pair[1]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], add_generation_prompt=True, tokenize=False
    )
    assert text.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.model_max_length == 8192
