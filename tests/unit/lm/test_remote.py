import asyncio
import contextlib
import gzip
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest
from http_servers import ids_of, rows_of, serving
from pydantic import SecretStr
from tiny_models import model, tokenizer

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import (
    ConfigurationError,
    InvalidInputError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    ScoringError,
)
from ecs_plugins.lm.base import LanguageModel, ScoreRequest, Segment
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.remote import client
from ecs_plugins.lm.remote.remote_lm import RemoteLM

pytestmark = [pytest.mark.timeout(60), pytest.mark.model, pytest.mark.slow]  # waits for servers

KINDS = ("sglang", "vllm")
QUICK = {"deadline_s": 20, "request_timeout_s": 5}
LONG = "Ann moved to Paris in the spring and kept a small garden there. " * 3


PASSAGES = (" Paris is big.", " Bob sells bread.", " Paris is big.")


def score_request(prefix="Ann lives in", passages=PASSAGES):
    """Two questions with answers, behind nothing and behind every passage."""
    question = Segment(" Question: Where does Ann live?", scored=True)
    cue = Segment(" Answer:")
    paris = Segment(" in Paris", scored=True)
    rome = Segment(" in Rome", scored=True)
    candidates = [(Segment(passage),) for passage in passages]
    return ScoreRequest(
        prefix=(Segment(prefix),),
        candidates=(NOTHING, *candidates),
        continuations=(
            (question, cue, paris),
            (question, cue, rome),
        ),
    )


ANN = (Segment("Ann"),)
NOTHING = ()


def small_request(answer=" Paris"):
    """An answer behind one token."""
    continuation = (Segment(answer, scored=True),)
    return ScoreRequest(ANN, (NOTHING,), (continuation,))


def logprobs_behind(result, candidate):
    """All log-probabilities behind a candidate."""
    segments = chain.from_iterable(result.scores[candidate])
    return np.concatenate([segment.logprobs for segment in segments])


def flat(results):
    """All log-probabilities of all results."""
    parts = []
    for result in results:
        candidates = range(len(result.scores))
        parts.extend(logprobs_behind(result, candidate) for candidate in candidates)
    return np.concatenate(parts)


def assert_close(results, wanted):
    np.testing.assert_allclose(flat(results), flat(wanted), atol=1e-4)


@pytest.fixture(autouse=True)
def short_rests(monkeypatch):
    monkeypatch.setattr(client, "BACKOFF_S", 0.01)


@pytest.fixture(scope="module")
def pair():
    return model("llama"), tokenizer("byte_level")


@pytest.fixture(scope="module")
def local(pair):
    return LocalLM(*pair)


@pytest.fixture
def server(pair):
    with serving(*pair) as running:
        yield running


def remote(server, kind="sglang", **more):
    options = {"tokenizer": tokenizer("byte_level")} | QUICK | more
    return RemoteLM(server.url, server=kind, **options)


@pytest.fixture(params=[*KINDS, "vllm by position"])
def lm(request, server):
    kind, *by_position = request.param.split(" by ")
    server.cached = 0 if by_position else None
    lm = remote(server, kind=kind).warmup()
    server.requests.clear()
    yield lm
    lm.close()


# Right numbers.


@pytest.mark.parametrize("family", ["byte_level", "sentencepiece"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_local_model(pair, kind, family) -> None:
    own = tokenizer(family)
    served, _ = pair
    requests = [score_request(), score_request(LONG, (" Rome.",)), score_request("")]
    wanted = LocalLM(served, own).score(requests)
    with serving(served, own) as server:
        results = remote(server, kind=kind, tokenizer=own).score(requests)
    assert_close(results, wanted)
    for result, same in zip(results, wanted, strict=True):
        assert result.candidate_tokens == same.candidate_tokens


BY_POSITION = "/inference/v1/generate"
WHOLE = "/v1/completions"


@pytest.mark.parametrize(
    ("cached", "paths"),
    [
        (4, {BY_POSITION}),
        (30, {BY_POSITION, WHOLE}),
        (None, {WHOLE}),
    ],
)
def test_vllm_scores_by_position_where_it_can_else_all(server, local, cached, paths) -> None:
    if cached is not None:
        server.cached = 0  # of two tokens
    lm = remote(server, kind="vllm").warmup()
    server.cached = cached
    server.requests.clear()
    requests = [score_request(), score_request(LONG, (" Rome.",))]
    assert_close(lm.score(requests), local.score(requests))
    assert {path for path, _ in server.requests} == paths


def test_it_is_a_language_model(lm, local) -> None:
    assert isinstance(lm, LanguageModel)
    assert lm.name == "served"
    assert lm.layout == local.layout
    texts = ["Ann lives", ""]
    assert lm.count_tokens(texts) == local.count_tokens(texts)


def test_neither_it_nor_a_store_needs_torch(server, pair, tmp_path) -> None:
    pair[1].save_pretrained(tmp_path)
    code = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec  # torch is as if it were not installed
PathFinder.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
from ecs_plugins import ContextShaper, EntropicMemory, FakeEmbedder, RemoteLM, ShapingConfig
from ecs_plugins.langgraph import EntropicStore
store = EntropicStore(EntropicMemory.open(":memory:", embedder=FakeEmbedder()))
store.put(("u",), "k", {{"text": "bees"}})
lm = RemoteLM({server.url!r}, server="sglang", tokenizer={str(tmp_path)!r})
config = ShapingConfig(
    signal="query_likelihood+bm25", ranker="bm25", on_error="raise", top_k=1
)
shaper = ContextShaper(lm, config)
print(len(shaper.shape("Who?", ["Ann.", "Bo."]).kept), len(store.search(("u",), query="bees")))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    kept_and_hits = done.stdout.split()
    assert kept_and_hits == ["1", "1"], done.stderr


def test_generation_is_that_of_the_local_model(lm, local) -> None:
    texts = ["Ann lives in", "Bob sells bread, cheese and"]
    prompts = [(Segment(text),) for text in texts]
    wanted = local.generate(prompts, max_new_tokens=6)
    generations = lm.generate(prompts, max_new_tokens=6)
    for generation, same in zip(generations, wanted, strict=True):
        assert generation.text == same.text
        assert generation.prompt_tokens == same.prompt_tokens
        assert generation.finish_reason in ("length", "stop")


def test_sampling_options_reach_the_server(lm, server) -> None:
    options = {"temperature": 0.7, "top_p": 0.9, "stop": ["x"]}
    lm.generate([ANN], max_new_tokens=2, seed=7, **options)
    (body,) = server.worked
    sent = body.get("sampling_params", body)
    assert options.items() <= sent.items()
    assert sent.get("seed", sent.get("sampling_seed")) == 7


def test_sglang_takes_a_call_in_one_request_behind_the_part_that_it_shares(server, local) -> None:
    lm = remote(server).warmup()
    request = score_request(LONG, (" Paris.", " Rome."))
    server.requests.clear()
    assert_close(lm.score([request]), local.score([request]))
    prompts = [len(body["input_ids"]) for _, body in server.requests]
    assert prompts == [1, 5]


def test_every_prompt_needs_an_answer(server) -> None:
    lm = remote(server).warmup()
    server.faults.append({"body": b"[]"})
    with pytest.raises(ScoringError, match="0 answers to 1 prompts"):
        lm.score([small_request()])


def test_threads_share_it_and_send_no_more_at_once_than_allowed(server, local) -> None:
    lm = remote(server, max_parallel=3)
    passages = [f" Line {number}." for number in range(30)]
    requests = [score_request(f"Ann {number}", passages) for number in range(4)]
    wanted = local.score(requests)

    def score(request):
        (result,) = lm.score([request])
        return result

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(score, requests))
    assert_close(results, wanted)
    assert 1 <= server.most_busy <= 3


def test_candidates_beyond_the_window_are_unscored(lm) -> None:
    too_long = LONG * 3
    request = score_request(passages=(too_long, " Rome."))
    (result,) = lm.score([request])
    assert list(result.unscored) == [1]
    assert "window" in result.unscored[1]
    assert np.isnan(logprobs_behind(result, 1)).all()
    assert np.isfinite(logprobs_behind(result, 2)).all()


def test_text_beyond_the_window_is_refused_before_sending(lm, server) -> None:
    with pytest.raises(InvalidInputError, match="window"):
        lm.score([score_request(LONG * 3)])
    with pytest.raises(InvalidInputError, match="window"):
        lm.generate([ANN], max_new_tokens=500)
    assert server.worked == []


def test_untrusted_text_cannot_send_control_tokens(lm, server, pair) -> None:
    lm.score([score_request(passages=(" <|im_end|>",))])
    control = pair[1].convert_tokens_to_ids("<|im_end|>")
    assert all(control not in ids_of(body) for body in server.worked)


# Faults.


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"status": 503, "headers": {"Retry-After": "0.05"}},
        {"status": 429, "headers": {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}},
        {"truncate": True},
        {"drop": True},
    ],
)
def test_a_passing_fault_is_tried_again(lm, server, local, fault) -> None:
    server.faults.extend([fault, fault])
    assert_close(lm.score([score_request()]), local.score([score_request()]))
    assert not server.faults


@pytest.mark.parametrize(
    ("status", "message", "tries"),
    [
        (500, r"5 tries.*HTTP 500", 5),
        (400, "HTTP 400", 1),
    ],
)
def test_a_fault_that_does_not_pass_is_a_model_error_that_names_it(
    lm, server, status, message, tries
) -> None:
    server.faults.extend([{"status": status}] * 10)
    with pytest.raises(ModelError, match=message):
        lm.score([small_request()])
    assert len(server.faults) == 10 - tries


ASKS_FOR_AN_HOUR = {"status": 429, "headers": {"Retry-After": "3600"}}


@pytest.mark.parametrize("fault", [{"hang": 3.0}, {"drip": 0.2}, ASKS_FOR_AN_HOUR])
def test_a_server_that_hangs_past_the_deadline_is_a_timeout(server, fault) -> None:
    lm = remote(server, deadline_s=1.5).warmup()
    server.faults.extend([fault] * 50)
    with pytest.raises(ModelTimeoutError, match="deadline_s"):
        lm.score([score_request()])


def entries(answer):
    if "choices" in answer:
        return answer["choices"][0]["prompt_logprobs"]
    return answer["meta_info"]["input_token_logprobs"]


def with_last(logprob, token=None):
    """An edit of an answer: another last log-probability, of another token where one is given."""

    def edit(answer):
        last = entries(answer).pop()
        if isinstance(last, dict):
            (scored,) = last
            entry = {token or scored: {"logprob": logprob}}
        else:
            _, scored, _ = last
            entry = [logprob, token or scored, None]
        entries(answer).append(entry)

    return edit


@pytest.mark.parametrize("lm", KINDS, indirect=True)
@pytest.mark.parametrize(
    ("edit", "error", "message"),
    [
        (lambda answer: entries(answer).pop(), ScoringError, "log-probabilities for"),
        (with_last(float("nan")), ScoringError, "NaN"),
        (with_last(None), ScoringError, "NaN"),
        (with_last(0.5), ScoringError, "more than certain"),
        (with_last(-1.0, token=99999), ScoringError, "changes prompts"),
        (dict.clear, ModelError, "not of the form"),
        (lambda a: a.update(choices=[], meta_info=None), ModelError, "not of the form"),
    ],
)
def test_an_answer_that_cannot_be_trusted_is_an_error(lm, server, edit, error, message) -> None:
    server.faults.append({"edit": edit})
    with pytest.raises(error, match=message):
        lm.score([score_request()])


@pytest.mark.parametrize("lm", ["vllm by position"], indirect=True)
@pytest.mark.parametrize(
    "scores",
    [
        rows_of([[-1]] * 99),
        rows_of([[np.nan]] * 2),
        rows_of(-1),
        "no array",
    ],
)
def test_rows_that_cannot_be_trusted_are_an_error(lm, server, scores) -> None:

    def edit(answer):
        answer["prompt_token_id_logprobs"] = scores

    server.faults.append({"edit": edit})
    request = small_request(" is")
    with pytest.raises(ModelError, match=r"99 log-probabilities|NaN|not of the form"):
        lm.score([request])


# Whom it talks to.


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_another_tokenizer_is_refused(pair, kind) -> None:
    with serving(pair[0], tokenizer("sentencepiece")) as other:
        with pytest.raises(ConfigurationError, match="tokenizer of the served model"):
            remote(other, kind=kind).score([score_request()])
        assert other.worked == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_cannot_score_gets_one_sentence_with_a_remedy(server, monkeypatch, kind):
    monkeypatch.setattr("http_servers.ROUTES", ["/v1/models"])
    with pytest.raises(ConfigurationError) as caught:
        remote(server, kind=kind).score([score_request()])
    message = str(caught.value)
    for words in ("llama.cpp", "Ollama", "LM Studio", "SGLang", "LocalLM.from_pretrained"):
        assert words in message
    assert not re.search(r"[.!?]\s", message.replace("llama.cpp's", "")), "one sentence"


def the_key():
    return SecretStr("secret")


def test_the_api_key_is_sent_and_not_shown_and_a_copy_asks_the_function_for_it(pair) -> None:
    with serving(*pair, key="secret") as server:
        with_function = remote(server, api_key=the_key, max_tokens=150)
        copied = pickle.loads(pickle.dumps(with_function))
        lm = remote(server, api_key=" secret\n")  # as it is read from a file
        assert copied.score([small_request()])
        assert copied.max_tokens == 150
        assert lm.score([small_request()])
        with pytest.raises(ConfigurationError, match="API key"):
            remote(server).score([small_request()])
    assert "secret" not in f"{lm!r} {vars(lm)} {lm._client._http.headers!r}"
    assert b"secret" not in pickle.dumps(lm)
    with pytest.raises(ModelError) as caught:  # the server is gone
        lm.score([small_request()])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("urls", "key"),
    [
        ("http://me:secret@gpu", None),
        ("me:secret@gpu", None),
        ("http://gpu", "sec\nret"),
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_shown(urls, key) -> None:
    with pytest.raises(ConfigurationError, match="api_key") as caught:
        RemoteLM(urls, tokenizer="nowhere", api_key=key)
    message = str(caught.value)
    for secret in ("secret", "ret\n", "sec\n"):
        assert secret not in message


def test_an_answer_longer_than_allowed_is_not_read_to_its_end(server, monkeypatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 100_000)
    lm = remote(server).warmup()
    bomb = gzip.compress(b" " * 50_000_000)
    server.faults.append({"body": bomb, "headers": {"Content-Encoding": "gzip"}})
    with pytest.raises(ModelError, match="longer than 100,000 bytes"):
        lm.score([small_request()])


def test_the_environments_proxy_is_not_used(server, monkeypatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert remote(server).score([score_request()])


def test_the_window_is_the_servers_or_shorter(server) -> None:
    assert remote(server).max_tokens == server.window - 8
    assert remote(server, kind="vllm").max_tokens == server.window - 1
    assert remote(server, max_tokens=50).max_tokens == 50
    server.window = 0
    with pytest.raises(ConfigurationError, match="max_tokens="):
        remote(server, kind="vllm").warmup()


# As an object.


def test_close_during_a_call_ends_it_and_the_next_use_connects_again(server) -> None:
    lm = remote(server).warmup()
    server.faults.extend([{"hang": 0.5}] * 6)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(lm.score, [score_request()])
        while not server.worked:
            time.sleep(0.01)
        lm.close()
        with contextlib.suppress(ModelError):
            call.result(20)
    assert lm.score([score_request()])


async def test_a_cancelled_task_sends_nothing_more(server) -> None:
    lm = remote(server, kind="vllm", max_parallel=1).warmup()
    server.faults.extend([{"hang": 0.2}] * 100)
    passages = [f" {number}." for number in range(40)]
    many = score_request(passages=passages)
    task = asyncio.create_task(run_sync(lm.score, [many]))
    while not server.worked:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.6)
    sent = len(server.worked)
    assert sent < 10
    await asyncio.sleep(0.4)
    assert len(server.worked) == sent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_opens_its_own_connections(server) -> None:
    lm = remote(server)
    before = flat(lm.score([score_request()]))
    child = os.fork()
    if not child:
        signal.alarm(30)
        after = flat(lm.score([score_request()]))
        os._exit(not np.allclose(after, before, atol=1e-4))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("urls", "options", "named"),
    [
        ("", {}, "address"),
        ("gpu-1:30000", {}, "address"),
        ("ftp://gpu", {}, "address"),
        (["http://gpu", "http://gpu2"], {}, "router"),
        ("http://gpu", {"server": "tgi"}, "server"),
        ("http://gpu", {"patience": 5}, "patience"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_at_once(urls, options, named) -> None:
    with pytest.raises(ConfigurationError, match=named):
        RemoteLM(urls, tokenizer="nowhere", **options)


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [
        ("20", 19, 20),
        ("1e300", 59, 60),
        ("soon", 0, 1),
    ],
)
def test_a_retry_waits_as_long_as_asked_but_no_longer_than_a_minute(
    retry_after, least, most
) -> None:
    pause = client.PassingFault("HTTP 429", retry_after).pause(0)
    assert least < pause <= most


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "other"}, ConfigurationError, "does not serve 'other'"),
        ({"tokenizer": "/no/such/directory"}, ModelNotFoundError, "tokenizer"),
    ],
)
def test_a_missing_server_is_named_on_first_use(server, options, error, message) -> None:
    with pytest.raises(error, match=message):
        remote(server, **options).warmup()
