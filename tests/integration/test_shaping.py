"""Common behaviour of compressor and postprocessor."""

import asyncio
import copy
import json
import pickle
import threading

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import (
    MetadataMode,
    NodeWithScore,
)

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.shaping import ShapingConfig
from ecs_plugins.shaping.probability import ProbabilityFit
from tests.integration.shaping_setup import (
    GIVEN_ORDER,
    QUERY,
    RANKED,
    TEXTS,
    BrokenModel,
    Compressor,
    CountingEmbedder,
    Postprocessor,
    WatchedModel,
    read_by,
)


@pytest.fixture(params=[Compressor, Postprocessor], ids=lambda kind: kind.__name__)
def kind(request):
    return request.param()


@pytest.fixture
def given(kind):
    return kind.given()


@pytest.fixture
def make(kind):
    def made(**fields):
        fields.setdefault("model", FakeLanguageModel())
        fields.setdefault("config", GIVEN_ORDER)
        fields.setdefault("top_k", 2)
        return kind.component(**fields)

    return made


def test_kept_passages_stay_in_their_order(kind, make, given):
    forwards = kind.shape(make(), given)
    backwards = kind.shape(make(), given[::-1])
    assert kind.ids(forwards) == ["id-1", "id-3"]
    assert kind.ids(backwards) == ["id-3", "id-1"]


def test_no_model_is_loaded_without_a_signal(kind, given, monkeypatch):
    monkeypatch.setattr("ecs_plugins.integrations.fields.as_model", lambda _: pytest.fail("loaded"))
    component = kind.component(signal=None, ranker="bm25", top_k=1)
    assert len(kind.shape(component, given)) == 1


def test_a_kept_passage_is_a_copy_with_its_index(kind, make, given):
    before = copy.deepcopy(given)
    kept = kind.shape(make(), given)
    assert given == before
    originals = set(map(id, given))
    assert originals.isdisjoint(map(id, kept))
    assert kind.text(kept[0]) == TEXTS[1]
    assert kept[0].metadata["tag"] == "x"
    # Without a fit, the score stays that of the retriever.
    assert kind.score(kept[0]) == kind.score(given[1])
    assert kind.score(kept[1]) == kind.score(given[3])
    ecs = kept[1].metadata["ecs"]
    assert ecs["original_rank"] == 4
    assert ecs["model"] == "fake"
    assert ecs["verdict"] == "selected"
    assert ecs["retriever_score"] == pytest.approx(0.6)
    assert ecs["tokens"] > 0
    assert ecs["parts"]


def test_a_title_in_the_metadata_leads_to_a_second_hop(kind, make):
    texts = [
        "The night ferry was the work of Ada Moran.",
        "The night ferry has a painter on board, who likes the night.",
        "She came to the world in Bergen.",
    ]
    query = "Where was the painter of the night ferry born?"
    component = make(config=ShapingConfig(top_k=2, redundancy_similarity=None))
    given = kind.given(texts)
    plain = kind.shape(component, given, query)
    given[2].metadata["title"] = "Ada Moran"
    titled = kind.shape(component, given, query)
    assert kind.ids(plain) == ["id-0", "id-1"]
    assert kind.ids(titled) == ["id-0", "id-2"]


def test_the_score_is_a_probability_where_one_was_fitted_and_metadata_is_json(kind, make, given):
    fit = ProbabilityFit(0.0, {"utility": 1.0})
    kept = kind.shape(make(config=GIVEN_ORDER, probability=fit, embedder=FakeEmbedder()), given)
    best = max(kept, key=kind.score)
    assert kind.ids([best]) == ["id-3"]
    for item in kept:
        score = kind.score(item)
        assert type(score) is float
        assert 0.0 < score < 1.0
        assert score <= item.metadata["ecs"]["answerable"]
        written = json.dumps(item.metadata)
        assert json.loads(written) == item.metadata


async def test_nothing_gives_nothing_without_a_model(kind):
    component = kind.component(model="no/such-model")
    assert kind.shape(component, []) == []
    assert await kind.ashape(component, []) == []


def test_threshold_and_token_budget_limit_the_selection(kind, make, given):
    by_signal = ShapingConfig(signal="query_likelihood+bm25")
    scored = kind.shape(make(top_k=4, embedder=FakeEmbedder()), given)
    best = max(item.metadata["ecs"]["utility"] for item in scored)
    tokens = scored[-1].metadata["ecs"]["tokens"]
    strict = make(
        top_k=4,
        threshold=best,
        config=by_signal,
        embedder=FakeEmbedder(),
    )
    within = make(top_k=None, max_tokens=tokens, embedder=FakeEmbedder())
    assert kind.ids(kind.shape(strict, given)) == ["id-3"]
    assert kind.ids(kind.shape(within, given)) == ["id-3"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_name": "x"}, "did you mean model"),
        ({"treshold": 0.1}, "did you mean threshold"),
        ({"config": {"pool_sise": 1}}, "did you mean pool_size"),
        ({"top_k": 0}, "top_k"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"config": 3}, "config"),
        ({"config": {"top_k": "three"}}, "top_k"),
        ({"model": 3}, "model"),
        ({"model": FakeLanguageModel}, "model"),
        ({"answer": "Lisbon"}, "answer"),
        ({"embedder": 3}, "embedder"),
    ],
)
def test_invalid_settings_are_refused_at_construction(make, fields, said):
    with pytest.raises(ConfigurationError, match=said):
        make(**fields)


def test_known_answers_per_query_decide_the_selection(kind, make, given):
    asked = []

    def answer(query):
        asked.append(query)
        return ["sardines taste best in June", "Grilled sardines"]

    component = make(top_k=1, answer=answer)
    (kept,) = kind.shape(component, given)
    assert asked == [QUERY]
    assert kind.ids([kept]) == ["id-2"]
    assert kept.metadata["ecs"]["signal"] == "joint_shift+bm25"


@pytest.mark.parametrize("query", ["", "  \n"])
def test_an_empty_query_is_refused(kind, make, given, query):
    with pytest.raises(InvalidInputError):
        kind.shape(make(), given, query)


def test_a_model_that_cannot_score_gives_back_everything_and_says_so(kind, make, given):
    kept = kind.shape(make(model=BrokenModel()), given)
    assert kind.ids(kept) == kind.ids(given)
    for item, before in zip(kept, given, strict=True):
        ecs = item.metadata["ecs"]
        assert kind.score(item) == kind.score(before)
        assert ecs["verdict"] == "unscored"
        assert "not finite" in ecs["error"]


async def test_the_model_runs_off_the_loop_while_other_coroutines_progress(kind, make, given):
    model = WatchedModel()

    async def other_work():
        while not model.started.is_set():
            await asyncio.sleep(0)
        model.progress.set()

    shaping = kind.ashape(make(model=model), given)
    kept, _ = await asyncio.gather(shaping, other_work())
    assert model.progressed_during_scoring
    assert model.thread is not threading.current_thread()
    assert kept == kind.shape(make(), given)


def test_a_deep_copy_shares_a_model_that_cannot_be_pickled(make):
    component = make(model=WatchedModel())  # holds locks
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(component)
    assert copy.deepcopy(component).model is component.model
    assert copy.deepcopy(component) == component


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_the_frameworks_json_is_the_component_and_refuses_a_live_object(kind):
    config = ShapingConfig(pool_size=7, acceptance="stream")
    back = kind.copied(
        kind.component(
            model="some/model",
            config=config,
            max_tokens=50,
        )
    )
    assert back.model == "some/model"
    assert back.config == config.replace(max_tokens=50)
    live = [
        {"model": FakeLanguageModel()},
        {"model": "some/model", "answer": str.upper},
    ]
    for fields in live:
        component = kind.component(**fields)
        with pytest.raises((NotImplementedError, ValueError), match=r"implemented|as JSON"):
            kind.copied(component)


@pytest.mark.parametrize("config", [RANKED, ShapingConfig(signal="judge+dense", ranker=None)])
def test_passages_are_embedded_once_for_all_calls_and_copies(kind, make, given, config):
    embedder = CountingEmbedder()
    component = make(config=config, embedder=embedder)
    first = kind.shape(component, given)
    wider = component.config.replace(max_tokens=60)
    narrower = component.model_copy(update={"config": wider})
    for other in (component, narrower, copy.deepcopy(component)):
        assert kind.shape(other, given) == first
    assert len(embedder.embedded) == len(TEXTS)
    back = pickle.loads(pickle.dumps(component))
    assert back.config == config.replace(top_k=2)
    assert kind.shape(back, given) == first
    assert len(back.embedder.embedded) == 2 * len(TEXTS)


LONG = "The ferry leaves at nine. Maria does live now in the city of Lisbon. Sardines taste best."


def with_text(item, text):
    if isinstance(item, Document):
        return item.model_copy(update={"page_content": text})
    node = item.node.model_copy(update={"text": text})
    return NodeWithScore(node=node, score=item.score)


@pytest.mark.parametrize("prune", [False, True])
def test_prune_keeps_only_helping_sentences(kind, make, given, prune):
    before = with_text(given[0], LONG)
    (kept,) = kind.shape(make(prune=prune, top_k=1), [before])
    left = "Maria does live now in the city of Lisbon." if prune else LONG
    assert kind.text(kept) == left
    assert kind.text(before) == LONG
    assert bool(kept.metadata["ecs"]["dropped"]) is prune
    assert kept.metadata["tag"] == "x"
    assert json.loads(json.dumps(kept.metadata)) == kept.metadata


class Recorder(BaseCallbackHandler):
    def __init__(self) -> None:
        self.events = []
        self.runs = {}

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, **kwargs):
        self.runs[run_id] = (kwargs.get("name"), parent_run_id)

    def on_retriever_start(self, serialized, query, *, run_id, parent_run_id=None, **kwargs):
        self.runs[run_id] = ("retriever", parent_run_id)

    def on_custom_event(self, name, data, *, run_id, **kwargs):
        self.events.append((name, data, run_id))


@pytest.mark.parametrize("kind", [Compressor], indirect=True)
class TestInLangChain:
    def test_the_event_tells_of_every_document_also_of_the_dropped(self, kind, make, given):
        recorder = Recorder()
        by_signal = ShapingConfig(signal="query_likelihood+bm25", threshold=0.0)
        for fields in ({"config": by_signal}, {}):
            make(**fields).compress_documents(given, QUERY, callbacks=[recorder])
        helped, ranked = (event[1]["passages"] for event in recorder.events)
        chain = RunnableLambda(lambda query: kind.shape(make(), given))
        # The surrounding run is found.
        chain.invoke(QUERY, config={"callbacks": [recorder]})
        assert len(recorder.events) == 3
        told = {verdict["index"]: verdict["verdict"] for verdict in ranked}
        assert list(told) == [0, 1, 2, 3]
        kept = [verdict["index"] for verdict in ranked if verdict["kept"]]
        assert kept == [1, 3]
        assert told[1] == told[3] == "selected"
        kept = {verdict["verdict"] for verdict in helped if verdict["kept"]}
        assert kept == {"helps"}

    def test_something_that_is_no_document_is_refused(self, kind, make, given):
        with pytest.raises(InvalidInputError, match="Document"):
            make().compress_documents(["text"], QUERY)
        with pytest.raises(InvalidInputError, match='"documents"'):
            make().invoke(given)

    async def test_behind_a_retriever_it_compresses_in_a_run_below_the_retrievers(
        self, kind, make, given
    ):
        kept = {"id-1", "id-3"}
        store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        store.add_documents(given)
        retriever = store.as_retriever(search_kwargs={"k": 4})
        chain = ContextualCompressionRetriever(
            base_compressor=make(),
            base_retriever=retriever,
        )
        recorder = Recorder()
        found = chain.invoke(QUERY, config={"callbacks": [recorder]})
        assert set(kind.ids(found)) == kept
        (event,) = recorder.events
        name, parent = recorder.runs[event[2]]
        assert name == "ECSDocumentCompressor"
        assert recorder.runs[parent] == ("retriever", None)
        found = await chain.ainvoke(QUERY)
        assert set(kind.ids(found)) == kept

    async def test_as_a_runnable_it_takes_documents_and_query(self, kind, make, given):
        shaper = make()
        queries = (QUERY, "When does the ferry leave?")
        inputs = [{"documents": given, "query": query} for query in queries]
        single = [shaper.invoke(one) for one in inputs]
        assert kind.ids(single[0]) == ["id-1", "id-3"]
        assert shaper.batch(inputs) == single
        assert await shaper.abatch(inputs) == single


@pytest.mark.parametrize("kind", [Postprocessor], indirect=True)
class TestInLlamaIndex:
    def test_ecs_metadata_is_hidden_from_language_and_embedding_models(self, kind, make, given):
        kept = kind.shape(make(), given)[0]
        for mode in (MetadataMode.LLM, MetadataMode.EMBED):
            assert kept.get_content(mode) == given[1].get_content(mode)

    @pytest.mark.parametrize("mode", [MetadataMode.LLM, MetadataMode.NONE])
    def test_the_scored_text_is_the_text_of_the_answering_model(self, kind, make, given, mode):
        model = FakeLanguageModel()
        fields = {} if mode is MetadataMode.LLM else {"metadata_mode": "none"}
        kind.shape(make(model=model, **fields), given)
        scored = read_by(model)
        assert given[0].get_content(mode) in scored
        assert ("tag: x" in scored) == (mode is MetadataMode.LLM)

    def test_a_missing_query_is_a_clear_error(self, kind, make, given):
        with pytest.raises(InvalidInputError, match="query_str or query_bundle"):
            make().postprocess_nodes(given)

    async def test_rerank_events_are_dispatched(self, kind, make, given, dispatched):
        kind.shape(make(), given)
        await kind.ashape(make(), given)
        starts = [event for event in dispatched if isinstance(event, ReRankStartEvent)]
        ends = [event for event in dispatched if isinstance(event, ReRankEndEvent)]
        assert len(starts) == 2
        assert len(ends) == 2
        for start in starts:
            assert start.query == QUERY
            assert start.top_n == 2
            assert start.model_name == "fake"
            assert kind.ids(start.nodes) == kind.ids(given)
        for end in ends:
            assert kind.ids(end.nodes) == ["id-1", "id-3"]

    def test_a_callback_manager_does_not_stop_a_pickle(self, kind, make, given):
        manager = CallbackManager([LlamaDebugHandler(print_trace_on_end=False)])
        manager.lock = threading.Lock()
        shaper = make(callback_manager=manager)
        assert pickle.loads(pickle.dumps(shaper)).config.top_k == 2
        assert shaper.callback_manager is manager

    async def test_a_query_engine_answers_from_the_kept_nodes(self, kind, make, given):
        nodes = [each.node for each in given]
        embedding = MockEmbedding(embed_dim=4)
        index = VectorStoreIndex(nodes, embed_model=embedding)
        engine = RetrieverQueryEngine.from_args(
            index.as_retriever(similarity_top_k=4),
            llm=MockLLM(),
            node_postprocessors=[make(metadata_mode="none")],
        )
        responses = [engine.query(QUERY), await engine.aquery(QUERY)]
        for response in responses:
            assert set(kind.ids(response.source_nodes)) == {"id-1", "id-3"}
            prompt = str(response)  # MockLLM repeats its prompt
            assert TEXTS[3] in prompt
            assert TEXTS[0] not in prompt
            assert "utility" not in prompt
