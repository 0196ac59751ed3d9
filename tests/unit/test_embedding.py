import copy
import json
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from llama_index.core import MockEmbedding

from ecs_plugins.errors import InvalidInputError, ModelError, ModelNotFoundError
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking import embedder as module
from ecs_plugins.ranking.embedder import (
    Embedder,
    FakeEmbedder,
    SentenceTransformerEmbedder,
    as_embedder,
    default_embedder,
)
from ecs_plugins.ranking.registry import make_ranker

TEXTS = ["Ada feeds the cat.", "The boat leaves at noon.", "", "Feeding cats is Ada's job.", " \n"]


class LangChainLike:
    """Embedder with the same vector for every text."""

    def __init__(self, vector):
        self.vector = vector

    def embed_documents(self, texts):
        return [self.vector for _ in texts]

    def embed_query(self, text):
        return self.vector


@pytest.fixture(params=["fake", "wrapped", pytest.param("real", marks=pytest.mark.model)])
def any_embedder(request):
    if request.param == "real":
        return request.getfixturevalue("embedder")
    return FakeEmbedder() if request.param == "fake" else as_embedder(LangChainLike([3.0, 4.0]))


def test_documents_are_unit_rows_a_query_is_a_unit_vector_and_blank_texts_are_zero(any_embedder):
    vectors = any_embedder.embed_documents(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, any_embedder.dimension)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 0, 1, 0], atol=1e-6)
    query = any_embedder.embed_query("Who feeds the cat?")
    assert query.shape == (any_embedder.dimension,)
    assert query.dtype == np.float32
    assert np.linalg.norm(query) == pytest.approx(1.0, abs=1e-6)
    assert not any_embedder.embed_query(" ").any()
    assert isinstance(any_embedder, Embedder)


def test_a_string_is_not_taken_for_a_list_of_characters(any_embedder):
    for embed, thing in (
        (any_embedder.embed_documents, "abc"),
        (any_embedder.embed_documents, ["abc", None]),
        (any_embedder.embed_query, None),
    ):
        with pytest.raises(InvalidInputError):
            embed(thing)


def test_related_texts_are_nearer_and_a_vector_does_not_depend_on_its_batch(embedder):
    vectors = embedder.embed_documents(TEXTS)
    cat, boat, _, job, _ = vectors
    assert cat @ job > cat @ boat + 0.2
    alone = np.stack([embedder.embed_documents([text])[0] for text in TEXTS])
    np.testing.assert_allclose(vectors, alone, atol=1e-5)


def test_concurrent_callers_get_their_own_vectors(embedder):
    texts = [f"number {n} of many" for n in range(16)]
    expected = embedder.embed_documents(texts)
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(embedder.embed_query, texts))
    np.testing.assert_allclose(np.stack(got), expected, atol=1e-5)


def test_copies_and_pickles_share_the_loaded_model(embedder):
    embedder.embed_query("load")
    for other in (pickle.loads(pickle.dumps(embedder)), copy.deepcopy(embedder)):
        assert other is not embedder
        assert other._model() is embedder._model()


def test_the_default_is_one_per_process():
    assert default_embedder() is default_embedder()
    assert default_embedder().name == "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.model
def test_the_default_needs_no_network_and_shows_no_bar(monkeypatch, capfd):
    def refuse(*args, **kwargs):
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    module._loaded.cache_clear()
    assert SentenceTransformerEmbedder().embed_query("hello").shape == (384,)
    assert "Loading weights" not in capfd.readouterr().err


@pytest.mark.model
def test_opening_a_memory_loads_no_model(monkeypatch):
    def refuse(*_):
        raise AssertionError("loaded the model")

    monkeypatch.setattr(module, "_loaded", refuse)
    with EntropicMemory.open(embedder=SentenceTransformerEmbedder()) as memory:
        assert memory.embedder.dimension == 384
        with pytest.raises(ModelError, match="loaded the model"):
            memory.add("bees")


def test_a_missing_default_embedder_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_offline_package", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    default_embedder.cache_clear()
    with pytest.raises(ModelNotFoundError, match=r"ecs-plugins\[offline\]"):
        default_embedder()


@pytest.mark.parametrize("name", ["nobody/nothing", "not a name", "/no/such/directory"])
def test_a_model_that_is_not_here_is_not_downloaded_unasked(name):
    with pytest.raises(ModelNotFoundError, match="allow_download"):
        SentenceTransformerEmbedder(name).embed_query("hello")


@pytest.mark.parametrize(
    "theirs", [DeterministicFakeEmbedding(size=12), MockEmbedding(embed_dim=12, model_name="mock")]
)
def test_embeddings_of_the_frameworks_are_understood_and_own_ones_pass_through(theirs):
    wrapped = as_embedder(theirs)
    documents = wrapped.embed_documents(["a", "b"])
    query = wrapped.embed_query("x")
    assert documents.shape == (2, 12)
    assert query.shape == (12,)
    assert wrapped.dimension == 12
    assert wrapped.name == getattr(theirs, "model_name", wrapped.name)
    assert as_embedder(wrapped) is wrapped


@pytest.mark.parametrize("thing", [None, 3, "name", LangChainLike, object()])
def test_other_things_are_no_embedders(thing):
    with pytest.raises(InvalidInputError, match="no embedder"):
        as_embedder(thing)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0, float("nan")], "NaN or infinity"),
        ([1.0, float("inf")], "NaN or infinity"),
        ([0.0, 0.0], "zero vector"),
        ([], "shape"),
        ([[1.0], [2.0, 3.0]], "numbers in equal rows"),
        (["a", "b"], "numbers in equal rows"),
        (1.0, "shape"),
        (None, "shape|NaN"),
    ],
)
def test_vectors_that_cannot_be_compared_are_refused(vector, message):
    wrapped = as_embedder(LangChainLike(vector))
    with pytest.raises(ModelError, match=message):
        wrapped.embed_query("x")
    with pytest.raises(ModelError, match=message):
        wrapped.embed_documents(["x", "y"])


def test_a_changed_dimension_and_a_failure_are_model_errors_with_their_cause():
    inner = LangChainLike([1.0, 2.0])
    wrapped = as_embedder(inner)
    wrapped.embed_query("x")
    inner.vector = [1.0, 2.0, 3.0]
    with pytest.raises(ModelError, match="3 dimensions instead of 2"):
        wrapped.embed_documents(["y"])
    inner.embed_query = lambda text: 1 / 0
    with pytest.raises(ModelError, match="ZeroDivisionError") as caught:
        wrapped.embed_query("z")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_no_embedder_is_given_half_of_a_surrogate_pair():
    seen = []

    class Watching(LangChainLike):
        def embed_documents(self, texts):
            seen.extend(texts)
            return super().embed_documents(texts)

        def embed_query(self, text):
            seen.append(text)
            return super().embed_query(text)

    wrapped = as_embedder(Watching([1.0]))
    wrapped.embed_documents(["a \ud83d", "b"])
    wrapped.embed_query("\ude42?")
    assert seen == ["a \ufffd", "b", "\ufffd?"]


def test_fake_vectors_are_the_same_in_every_process():
    vector = FakeEmbedder(8).embed_query("the cat and the boat")
    squares = 7 * vector**2
    assert squares.round(5).tolist() == [1, 0, 1, 0, 0, 1, 4, 0]


@pytest.mark.model
@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("modules.json", [{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}], "its own"),
        ("router_config.json", {"types": {"query": "evil.Module"}, "structure": {}}, "its own"),
        ("config.json", {}, "cannot be loaded"),
    ],
)
def test_a_directory_without_a_model_or_with_code_is_refused(tmp_path, file, content, says):
    trace = tmp_path / "ran"
    code = f"open({str(trace)!r}, 'w')\nclass Module: pass"
    (tmp_path / "evil.py").write_text(code)
    (tmp_path / file).write_text(json.dumps(content))
    embedder = SentenceTransformerEmbedder(tmp_path)
    with pytest.raises(ModelError, match=says):
        embedder.embed_query("hello")
    assert not trace.exists()


class Counting(LangChainLike):
    """Counter of the texts that reach the model."""

    def __init__(self):
        super().__init__([3.0, 4.0])
        self.read = []

    def embed_documents(self, texts):
        self.read += texts
        return super().embed_documents(texts)

    def embed_query(self, text):
        self.read.append(text)
        return super().embed_query(text)


def test_ranking_and_memory_read_a_text_once():
    inner = Counting()
    shared = as_embedder(inner)
    texts = [text for text in TEXTS if text.strip()]
    first = shared.embed_documents([*texts, *texts])
    for _ in range(2):
        make_ranker("fused", shared).rank("cats?", texts)
        make_ranker("convex", shared).rank("cats?", texts[:1])
    with EntropicMemory.open(embedder=shared) as memory:
        for text in texts:
            memory.add(text)
    assert sorted(inner.read) == sorted({*texts, "cats?"})
    np.testing.assert_array_equal(shared.embed_documents(texts), first[: len(texts)])


def test_a_caller_may_change_the_vectors_that_it_was_given():
    shared = as_embedder(Counting())
    for embed in (
        lambda: shared.embed_documents(["a cat"])[0],
        lambda: shared.embed_query("a cat"),
    ):
        embed()[:] = 0.0
        assert embed().any()


def test_copies_share_vectors_and_a_pickle_holds_none():
    shared = as_embedder(Counting())
    empty = len(pickle.dumps(shared))
    shared.embed_documents(["a cat"])
    shared._inner.read.clear()
    assert b"a cat" not in pickle.dumps(shared)
    assert len(pickle.dumps(shared)) < 2 * empty
    copied, again = copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))
    copied.embed_documents(["a cat"])
    again.embed_documents(["a cat"])
    assert copied._inner.read == []
    assert again._inner.read == ["a cat"]
