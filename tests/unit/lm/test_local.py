import copy
import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import local, model, request, tokenizer

from ecs_plugins.errors import ConfigurationError, ModelError, ModelNotFoundError, ModelTimeoutError
from ecs_plugins.lm import loading
from ecs_plugins.lm import local as local_module
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.local import LocalLM

pytestmark = pytest.mark.model

WAIT = 20.0
ASKED = ScoreRequest(
    (Segment("Ann lives in"),), ((), (Segment(" Paris."),)), ((Segment(" Paris", scored=True),),)
)


def sums(lm, asked=ASKED):
    return [row[0][0].sum for row in lm.score([asked])[0].scores]


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

    monkeypatch.setattr(local_module, "load", counted)
    return seen


def test_a_directory_is_loaded_at_first_use_and_scores_like_the_loaded_pair(directory, loads):
    lm = LocalLM.from_pretrained(directory)
    assert lm.name == str(directory)
    assert loads == []
    assert sums(lm) == pytest.approx(sums(local()), abs=1e-5)
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


def test_a_handle_is_its_own_copy_and_one_on_a_pair_does_not_pickle() -> None:
    lm = local()
    assert copy.deepcopy(lm) is copy.copy(lm) is lm
    with pytest.raises(ConfigurationError, match="from_pretrained"):
        pickle.dumps(lm)


def test_a_path_that_leads_nowhere_is_refused_at_once(tmp_path) -> None:
    with pytest.raises(ModelNotFoundError, match="no model directory"):
        LocalLM.from_pretrained(tmp_path / "nothing")
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        LocalLM.from_pretrained(tmp_path)


def test_a_missing_hub_model_gives_advice() -> None:
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


def test_a_model_with_an_encoder_is_refused(damaged) -> None:
    changes = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}
    config = json.loads((damaged / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ModelError, match="not a causal language model"):
        LocalLM.from_pretrained(damaged).warmup()


@pytest.mark.parametrize(
    ("kind", "message"),
    [("LlamaForSequenceClassification", "incomplete"), ("BertForMaskedLM", "not a causal")],
)
def test_a_model_of_another_task_is_refused(directory, tmp_path, kind, message) -> None:
    kinds = getattr(transformers, kind)
    config = kinds.config_class(
        vocab_size=384,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        initializer_range=0.5,
        num_attention_heads=2,
        pad_token_id=0,
    )
    kinds(config).save_pretrained(tmp_path)
    for path in directory.glob("tokenizer*"):
        shutil.copy(path, tmp_path)
    with pytest.raises(ModelError, match=message):
        LocalLM.from_pretrained(tmp_path).warmup()


def test_a_missing_shard_is_named(damaged) -> None:
    (damaged / "model.safetensors").unlink()
    model("llama").save_pretrained(damaged, max_shard_size="20KB")
    (damaged / "model-00002-of-00006.safetensors").unlink()
    with pytest.raises(ModelError, match=r"incomplete.*model-00002-of-00006"):
        LocalLM.from_pretrained(damaged).warmup()


def test_a_missing_tokenizer_is_said_to_be_missing(damaged) -> None:
    for path in damaged.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match=r"no tokenizer.*save_pretrained"):
        LocalLM.from_pretrained(damaged).warmup()


@pytest.mark.parametrize("path", ["model.gguf", "/some/where/model.gguf"])
def test_a_gguf_file_is_refused_with_the_way_to_load_it(path) -> None:
    with pytest.raises(ConfigurationError, match=r"gguf_file=.*LocalLM\(model, tokenizer\)"):
        LocalLM.from_pretrained(path)


def test_a_pair_that_cannot_score_is_refused_when_it_is_given() -> None:
    config = model("llama").config
    with torch.device("meta"):
        empty = transformers.LlamaForCausalLM(config)
    for pair, message in (
        ((model("llama"), None), "needs the model's tokenizer, got None"),
        (("some/name", tokenizer("byte_level")), "from_pretrained a name"),
        ((empty, tokenizer("byte_level")), "meta device"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            LocalLM(*pair)


def test_tokens_without_a_row_in_the_model_name_the_tokenizer() -> None:
    words = copy.deepcopy(tokenizer("byte_level"))
    words.add_tokens([f"word{number}" for number in range(400)])
    lm = LocalLM(model("llama"), words)
    assert np.isfinite(sums(lm)).all()
    with pytest.raises(ConfigurationError, match="tokenizer of the same checkpoint"):
        lm.score([request(passages=("word399 is here",))])
    with pytest.raises(ConfigurationError, match="tokenizer of the same checkpoint"):
        lm.generate([(Segment("word399"),)])


def test_dropout_in_training_mode_is_named() -> None:
    config = copy.deepcopy(model("llama").config)
    config.update({"attention_dropout": 0.5})
    noisy = transformers.LlamaForCausalLM(config)
    noisy.load_state_dict(model("llama").state_dict())
    lm = LocalLM(noisy.train(), tokenizer("byte_level"))
    with pytest.raises(ModelError, match=r"training mode.*model\.eval\(\)"):
        lm.score([request()])
    noisy.eval()
    assert sums(lm) == pytest.approx(sums(local()), abs=1e-4)


@pytest.mark.parametrize("arguments", [{"dtype": "int3"}, {"deadline_s": 0.0}, {"max_token": 5}])
def test_options_unknown_or_out_of_range_are_refused_at_once(directory, arguments) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(arguments))):
        LocalLM.from_pretrained(directory, **arguments)


def test_a_pair_is_used_as_it_is_and_cannot_be_loaded_in_another_way() -> None:
    lm = local(name="mine", max_tokens=50)
    assert (lm.name, lm.max_tokens, lm.pair()[0]) == ("mine", 50, model("llama"))
    with pytest.raises(ConfigurationError, match="dtype: a loaded model"):
        local(dtype="bfloat16")


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


# --- Calls at once ---


def texts(n):
    passages = (f" Passage {n} says bread.", f" The market number {n} is closed.", " Rome")
    return request(f"Ann lives in house {n}.", passages, (" in Paris",))


def test_deadlines_of_a_handle_and_of_a_call() -> None:
    lm = local(deadline_s=1e-6)
    with pytest.raises(ModelTimeoutError):
        lm.score([texts(0)])
    assert lm.score([texts(0)], deadline_s=WAIT)


def test_close_during_a_call_lets_it_finish() -> None:
    lm = local()
    runtime = lm._load()
    with ThreadPoolExecutor(1) as pool:
        with runtime.worker._queue.computing:
            call = pool.submit(sums, lm, texts(1))
            until = time.monotonic() + WAIT
            while not runtime.worker._queue.jobs and time.monotonic() < until:
                time.sleep(0.001)
            lm.close()
        del runtime
        assert call.result(WAIT)
    with pytest.raises(ModelError, match="was closed"):
        lm.score([texts(1)])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_forked_after_the_model_computed_scores_and_generates() -> None:
    code = """
        import os, signal, sys, threading, warnings
        warnings.simplefilter("ignore")
        import torch
        sys.path.insert(0, sys.argv[1])
        from test_local import local, sums, texts
        from ecs_plugins.lm.base import Segment
        signal.alarm(90)
        torch.set_num_threads(2)
        lm = local()
        wanted = sums(lm, texts(1))
        torch.rand(600, 600) @ torch.rand(600, 600)  # an OpenMP team in the thread that forks
        torch.rand(10**6).exp()
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                lm.score([texts(2)])
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads: thread.start()
        for _ in range(3):
            child = os.fork()
            if not child:
                signal.alarm(30)
                big = lm._run(lambda: (torch.rand(10**6).exp() > 0).all().item())
                lm.generate([(Segment("Ann"),)], max_new_tokens=2)
                got = sums(lm, texts(1))
                same = all(abs(a - b) < 2e-5 for a, b in zip(got, wanted, strict=True))
                os._exit(0 if same and big else 7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        for thread in threads: thread.join(20)
        assert lm.score([texts(3)])
        print("parent works")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split("\n")[:-1] == ["0", "0", "0", "parent works"], done.stderr
