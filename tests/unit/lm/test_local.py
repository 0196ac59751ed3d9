import copy
import gc
import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from tiny_models import local, model, request, tokenizer

from ecs_plugins.errors import ConfigurationError, ModelError, ModelNotFoundError
from ecs_plugins.lm import loading, runtime
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.local import LocalLM

ASKED = ScoreRequest(
    (Segment("Ann lives in"),),
    ((), (Segment(" Paris."),)),
    ((Segment(" Paris", scored=True),),),
)


def sums(lm):
    return [row[0][0].sum for row in lm.score([ASKED])[0].scores]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-llama"
    model("llama").save_pretrained(path)
    tokenizer("byte_level").save_pretrained(path)
    return path


@pytest.fixture
def damaged(directory, tmp_path):
    path = tmp_path / "damaged"
    shutil.copytree(directory, path)
    return path


@pytest.fixture
def loads(monkeypatch):
    """Every model that was really loaded."""
    seen = []

    def counted(*what):
        seen.append(what)
        return loading.load(*what)

    monkeypatch.setattr(runtime, "load", counted)
    return seen


def test_a_directory_scores_like_the_loaded_pair(directory) -> None:
    pair = local()
    assert sums(LocalLM.from_pretrained(directory)) == pytest.approx(sums(pair), abs=1e-5)


def test_nothing_is_loaded_before_first_use(directory, loads) -> None:
    lm = LocalLM.from_pretrained(directory)
    assert lm.name == str(directory)
    assert loads == []
    lm.warmup()
    assert len(loads) == 1


def test_handles_on_one_model_share_it_across_threads(directory, loads) -> None:
    handles = [LocalLM.from_pretrained(directory) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(sums, handles))
    assert len(loads) == 1
    # Calls that meet are computed together, which changes the order of summation.
    assert all(r == pytest.approx(results[0], abs=1e-5) for r in results)
    LocalLM.from_pretrained(directory, dtype="bfloat16").warmup()
    assert len(loads) == 2


def test_close_frees_the_model_and_use_loads_it_again(directory, loads) -> None:
    lm = LocalLM.from_pretrained(directory)
    before = sums(lm)
    lm.close()
    gc.collect()
    assert sums(lm) == before
    assert len(loads) == 2


def test_a_handle_pickles_as_its_configuration(directory) -> None:
    lm = LocalLM.from_pretrained(directory, max_tokens=100, dtype="float32").warmup()
    data = pickle.dumps(lm)
    assert len(data) < 2000
    again = pickle.loads(data)
    assert again.name == lm.name
    assert repr(again) == repr(lm)
    assert again._options == lm._options
    assert again.max_tokens == 100
    assert sums(again) == sums(lm)


def test_a_deep_copy_shares_the_weights(directory, loads) -> None:
    lm = LocalLM.from_pretrained(directory).warmup()
    assert sums(copy.deepcopy(lm)) == sums(copy.copy(lm)) == sums(lm)
    assert len(loads) == 1


def test_a_pair_is_its_own_deep_copy_and_does_not_pickle() -> None:
    lm = local()
    assert copy.deepcopy(lm) is lm
    with pytest.raises(ConfigurationError, match="from_pretrained"):
        pickle.dumps(lm)


def test_a_path_that_leads_nowhere_is_refused_at_once(tmp_path) -> None:
    with pytest.raises(ModelNotFoundError, match="no model directory"):
        LocalLM.from_pretrained(tmp_path / "nothing")
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        LocalLM.from_pretrained(tmp_path)


def test_a_hub_name_that_is_not_here_says_what_to_do() -> None:
    lm = LocalLM.from_pretrained("nobody-here/no-such-model")
    with pytest.raises(ModelNotFoundError, match="allow_download=True"):
        lm.warmup()


def truncate(weights):
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def drop_a_tensor(weights):
    tensors = load_file(weights)
    tensors.pop("model.layers.1.mlp.down_proj.weight")
    save_file(tensors, weights, metadata={"format": "pt"})


def pickle_instead(weights):
    weights.unlink()
    torch.save(model("llama").state_dict(), weights.with_name("pytorch_model.bin"))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (truncate, ModelError, "damaged"),
        (drop_a_tensor, ModelError, "incomplete"),
        (pickle_instead, ModelNotFoundError, "no safetensors"),
    ],
)
def test_weights_truncated_incomplete_or_pickled_are_refused(damaged, damage, error, message):
    damage(damaged / "model.safetensors")
    with pytest.raises(error, match=message):
        LocalLM.from_pretrained(damaged).warmup()


def test_a_file_deleted_while_loaded_ends_nothing_but_the_next_loading(damaged) -> None:
    lm = LocalLM.from_pretrained(damaged)
    lm.score([request()])
    before = sums(lm)
    assert lm.cache_statistics.tokens > 0
    (damaged / "model.safetensors").unlink()
    LocalLM.from_pretrained(damaged).clear_cache()  # of the model that both handles share
    assert lm.cache_statistics.tokens == 0
    assert sums(lm) == pytest.approx(before, abs=1e-5)
    with pytest.raises(ModelError):
        LocalLM.from_pretrained(damaged, dtype="bfloat16").warmup()


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["LlamaForSequenceClassification"]},
        {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"},
    ],
)
def test_a_model_that_is_not_causal_is_refused(damaged, changes) -> None:
    config = json.loads((damaged / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ModelError, match="not a causal language model"):
        LocalLM.from_pretrained(damaged).warmup()


@pytest.mark.parametrize(
    "arguments",
    [
        {"dtype": "int3"},
        {"max_tokens": 0},
        {"token_budget": 0},
        {"max_waiting": 0},
        {"deadline_s": 0.0},
        {"max_token": 5},
    ],
)
def test_options_unknown_or_out_of_range_are_refused_at_once(directory, arguments) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(arguments))):
        LocalLM.from_pretrained(directory, **arguments)


def test_a_loaded_pair_cannot_be_loaded_in_another_way() -> None:
    with pytest.raises(ConfigurationError, match="dtype: a loaded model"):
        local(dtype="bfloat16")


def test_a_device_that_is_not_here_is_refused(directory) -> None:
    with pytest.raises(ConfigurationError, match="device"):
        LocalLM.from_pretrained(directory, device="no-such-device").warmup()


def test_a_pair_is_used_as_it_is() -> None:
    lm = local(name="mine", max_tokens=50)
    assert (lm.name, lm.max_tokens) == ("mine", 50)
    assert lm._load().engine.runner.model is model("llama")
    assert isinstance(tokenizer("byte_level"), tf.PreTrainedTokenizerFast)


def test_the_loaded_model_can_be_used_elsewhere(directory, loads) -> None:
    lm = LocalLM.from_pretrained(directory)
    loaded, its_tokenizer = lm.pair()
    ids = its_tokenizer("Ann lives in", return_tensors="pt").input_ids
    assert loaded.generate(ids, max_new_tokens=2, do_sample=False).shape == (1, ids.shape[1] + 2)
    assert lm.pair()[0] is loaded
    assert sums(lm)
    assert len(loads) == 1


def test_float32_on_a_cpu_whatever_the_checkpoint_says(damaged) -> None:
    half = copy.deepcopy(model("llama")).bfloat16()
    half.save_pretrained(damaged)
    lm = LocalLM.from_pretrained(damaged, device="cpu")
    assert lm._load().engine.runner.dtype == torch.float32
