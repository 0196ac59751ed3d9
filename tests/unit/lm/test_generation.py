import copy

import pytest
import torch
from tiny_models import SHARING, SHORT_WINDOWS, local, model, request, tokenizer

from ecs_plugins.errors import ConfigurationError, InvalidInputError, ModelError
from ecs_plugins.lm import generation
from ecs_plugins.lm.base import Segment
from ecs_plugins.lm.local import LocalLM

pytestmark = pytest.mark.model

PROMPTS = (
    (Segment("Ann"),),
    (Segment("The train from Rome to Milan was late"),),
    (Segment("snow and bread"),),
    (Segment("Bob sells"),),
)


def test_sampling_is_repeatable_and_leaves_the_global_generator_alone() -> None:
    lm = local()
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    first = lm.generate(PROMPTS, max_new_tokens=8, temperature=1.0, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(12)
    assert lm.generate(PROMPTS, max_new_tokens=8, temperature=1.0, seed=1) == first
    assert lm.generate(PROMPTS, max_new_tokens=8, temperature=1.0, seed=2) != first


def test_a_stop_string_ends_the_text_before_it() -> None:
    lm = local()
    (free,) = lm.generate(PROMPTS[:1], max_new_tokens=16)
    mark = free.text[4:6]
    (cut,) = lm.generate(PROMPTS[:1], max_new_tokens=16, stop=[mark])
    assert cut.text == free.text[: free.text.index(mark)]
    assert cut.finish_reason == "stop"
    assert cut.completion_tokens < free.completion_tokens


def configured(**settings):
    """A handle on the model under other settings of its checkpoint."""
    other = copy.copy(model("llama"))
    other.generation_config = copy.deepcopy(other.generation_config)
    other.generation_config.update(**settings)
    return LocalLM(other, tokenizer("byte_level"))


def test_an_end_token_ends_the_text_of_its_row_only() -> None:
    lm = local()
    (free,) = lm.generate(PROMPTS[:1], max_new_tokens=6)
    assert free.finish_reason == "length"
    assert free.completion_tokens == 6
    written = tokenizer("byte_level").encode(free.text, add_special_tokens=False)
    ending = configured(eos_token_id=[2, written[0]])
    ended, other = ending.generate(PROMPTS[:2], max_new_tokens=6)
    assert ended.finish_reason == "stop"
    assert ended.completion_tokens <= 6
    assert other.completion_tokens == 6 or other.finish_reason == "stop"


def test_a_checkpoints_own_sampling_settings_do_not_leak_in() -> None:
    warm = configured(do_sample=True, temperature=5.0, repetition_penalty=9.0)
    assert warm.generate(PROMPTS, max_new_tokens=6) == local().generate(PROMPTS, max_new_tokens=6)


def test_running_out_of_memory_makes_smaller_batches_until_no_prompt_fits(monkeypatch) -> None:
    lm = local()
    most = 1
    wanted = lm.generate(PROMPTS, max_new_tokens=4)
    generator = lm._load().generator
    whole = generator._batch

    def limited(prompts, options):
        if len(prompts) > most:
            raise torch.OutOfMemoryError("out of memory")
        return whole(prompts, options)

    monkeypatch.setattr(generator, "_batch", limited)
    assert lm.generate(PROMPTS, max_new_tokens=4) == wanted
    most = 0
    with pytest.raises(ModelError, match="out of memory"):
        lm.generate(PROMPTS[:1])


def test_kept_passages_give_their_memory_back_before_a_prompt_is_said_not_to_fit(
    monkeypatch,
) -> None:
    lm = local()
    wanted = lm.generate(PROMPTS[:1], max_new_tokens=4)
    lm.score([request()])
    assert lm.cache_statistics.tokens > 0
    generator = lm._load().generator
    whole = generator._batch

    def limited(prompts, options):
        if lm.cache_statistics.tokens:
            raise torch.OutOfMemoryError("out of memory")
        return whole(prompts, options)

    monkeypatch.setattr(generator, "_batch", limited)
    assert lm.generate(PROMPTS[:1], max_new_tokens=4) == wanted


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_new_tokens": 0}, ConfigurationError),
        ({"max_new_tokens": 250}, InvalidInputError),
        ({"top_p": 1.5}, ConfigurationError),
        ({"stop": [""]}, ConfigurationError),
        ({"stop": "x"}, ConfigurationError),
    ],
)
def test_options_out_of_range_are_refused(options, error) -> None:
    prompt = (Segment("Ann moved to Paris in the spring"),)
    with pytest.raises(error):
        local().generate([prompt], **options)


SHARED = "Ann moved to Paris in the spring and kept a small garden there. "
TEXTS = (
    SHARED + "Where does Ann live?",
    "The train from Rome to Milan was late again because of snow.",
    SHARED + "Who keeps a garden?",
    "snow and bread",
    SHARED + "Where does Ann live?",
)


@pytest.mark.parametrize("family", [*SHARING, *SHORT_WINDOWS])
def test_prompts_alone_read_apart_and_in_a_padded_batch_give_the_same_text(
    family, monkeypatch
) -> None:
    prompts = [(Segment(text),) for text in TEXTS]
    alone = [local(family).generate([prompt], max_new_tokens=12)[0] for prompt in prompts]
    for shortest in (1, 10**6):
        monkeypatch.setattr(generation, "WORTH_READING", shortest)
        assert local(family).generate(prompts, max_new_tokens=12) == alone
    assert len({g.text for g in alone}) > 1
