"""What the compressor and the postprocessor do alike: keep, tell, refuse, copy, run async."""

import asyncio
import copy
import json
import pickle
import threading

import pytest
from langchain_core.documents import Document
from langchain_core.load import dumps, loads
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.langchain import ECSDocumentCompressor
from ecs_plugins.llama_index import ECSPostprocessor
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.shaping import ShapingConfig
from tests.integration.shaping_setup import (
    GIVEN_ORDER,
    QUERY,
    RANKED,
    TEXTS,
    BrokenModel,
    CountingEmbedder,
    WatchedModel,
    read_by,
)


class Compressor:
    """LangChain: documents, whose score is metadata."""

    component = ECSDocumentCompressor

    def given(self):
        return [
            Document(page_content=text, id=f"id-{n}", metadata={"score": 0.9 - n / 10, "tag": "x"})
            for n, text in enumerate(TEXTS)
        ]

    def shape(self, component, given, query=QUERY):
        return component.compress_documents(given, query)

    async def ashape(self, component, given, query=QUERY):
        return await component.acompress_documents(given, query)

    def ids(self, items):
        return [item.id for item in items]

    def text(self, item):
        return item.page_content

    def copied(self, component):
        text = dumps(component)
        known = {"allowed_objects": [ECSDocumentCompressor]}
        return loads(text, valid_namespaces=["ecs_plugins"], **known)

    def score(self, item):
        return item.metadata.get("relevance_score")


class Postprocessor:
    """LlamaIndex: nodes with a score."""

    component = ECSPostprocessor

    def given(self):
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book")}
        return [
            NodeWithScore(
                node=TextNode(
                    text=text, id_=f"id-{n}", metadata={"tag": "x"}, relationships=source
                ),
                score=0.9 - n / 10,
            )
            for n, text in enumerate(TEXTS)
        ]

    def shape(self, component, given, query=QUERY):
        return component.postprocess_nodes(given, query_str=query)

    async def ashape(self, component, given, query=QUERY):
        return await component.apostprocess_nodes(given, query_str=query)

    def ids(self, items):
        return [item.node_id for item in items]

    def text(self, item):
        return item.get_content(MetadataMode.NONE)

    def copied(self, component):
        return ECSPostprocessor.from_dict(json.loads(json.dumps(component.to_dict())))

    def score(self, item):
        return item.score


@pytest.fixture(params=[Compressor, Postprocessor], ids=lambda kind: kind.__name__)
def kind(request):
    return request.param()


@pytest.fixture
def given(kind):
    return kind.given()


@pytest.fixture
def make(kind):
    def made(**fields):
        fields = {"model": FakeLanguageModel(), "config": GIVEN_ORDER, "top_k": 2, **fields}
        return kind.component(**fields)

    return made


def test_what_helps_is_kept_in_its_original_order(kind, make, given):
    assert kind.ids(kind.shape(make(), given)) == ["id-1", "id-3"]
    assert kind.ids(kind.shape(make(), given[::-1])) == ["id-3", "id-1"]


def test_what_was_given_is_not_mutated_and_survives(kind, make, given):
    before = copy.deepcopy(given)
    kept = kind.shape(make(), given)
    assert given == before
    assert not {id(item) for item in kept} & {id(item) for item in given}
    assert kind.text(kept[0]) == TEXTS[1]
    assert kept[0].metadata["tag"] == "x"


def test_scores_are_python_floats_and_metadata_is_json(kind, make, given):
    kept = kind.shape(make(), given)
    assert kind.ids([max(kept, key=kind.score)]) == ["id-3"]
    for item in kept:
        assert type(kind.score(item)) is float
        assert type(item.metadata["ecs"]["utility"]) is float
        assert json.loads(json.dumps(item.metadata)) == item.metadata


def test_ecs_metadata_tells_where_an_item_came_from(kind, make, given):
    ecs = kind.shape(make(), given)[1].metadata["ecs"]
    assert ecs["original_rank"] == 4
    assert ecs["retriever_score"] == pytest.approx(0.6)
    assert ecs["model"] == "fake"
    assert ecs["verdict"] == "selected"
    assert ecs["tokens"] > 0
    assert ecs["parts"]


async def test_nothing_gives_nothing_without_a_model(kind):
    component = kind.component(model="no/such-model")
    assert kind.shape(component, []) == await kind.ashape(component, []) == []


def test_threshold_and_token_budget_bound_what_is_kept(kind, make, given):
    scored = kind.shape(make(top_k=4), given)
    best = max(item.metadata["ecs"]["utility"] for item in scored)
    tokens = scored[-1].metadata["ecs"]["tokens"]
    assert kind.ids(kind.shape(make(top_k=4, threshold=best), given)) == ["id-3"]
    assert kind.ids(kind.shape(make(top_k=None, max_tokens=tokens), given)) == ["id-3"]


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
        ({"templates": {"no_such_signal": {"after": "text"}}}, "no_such_signal"),
        ({"templates": {"query_likelihood": {"no_such_part": "text"}}}, "no_such_part"),
        ({"templates": {"query_likelihood": {"passage": "no place"}}}, "passage"),
        ({"model": 3}, "model"),
        ({"model": FakeLanguageModel}, "model"),
        ({"answer": "Lisbon"}, "answer"),
        ({"embedder": 3}, "embedder"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name_at_construction(make, fields, said):
    with pytest.raises(ConfigurationError, match=said):
        make(**fields)


def test_known_answers_are_asked_per_query_and_decide_what_helps(kind, make, given):
    asked = []

    def answer(query):
        asked.append(query)
        return ["sardines taste best in June", "Grilled sardines"]

    (kept,) = kind.shape(make(top_k=1, answer=answer), given)
    assert asked == [QUERY]
    assert kind.ids([kept]) == ["id-2"]
    assert kept.metadata["ecs"]["signal"] == "joint_shift+bm25"


def test_a_replaced_template_is_what_the_model_reads(kind, make, given):
    model = FakeLanguageModel()
    templates = {"query_likelihood": {"after": "Ask about it, briefly."}}
    kind.shape(make(model=model, templates=templates), given)
    assert "Ask about it, briefly." in read_by(model)


@pytest.mark.parametrize("query", ["", "  \n"])
def test_an_empty_query_is_refused(kind, make, given, query):
    with pytest.raises(InvalidInputError):
        kind.shape(make(), given, query)


def test_a_model_that_cannot_score_gives_back_everything_and_says_so(kind, make, given):
    kept = kind.shape(make(model=BrokenModel()), given)
    assert kind.ids(kept) == kind.ids(given)
    assert [kind.score(item) for item in kept] == [kind.score(item) for item in given]
    for item in kept:
        assert item.metadata["ecs"]["verdict"] == "unscored"
        assert "not finite" in item.metadata["ecs"]["error"]


async def test_the_model_runs_off_the_loop_while_other_coroutines_progress(kind, make, given):
    model = WatchedModel()

    async def other_work():
        while not model.started.is_set():
            await asyncio.sleep(0)
        model.progress.set()

    kept, _ = await asyncio.gather(kind.ashape(make(model=model), given), other_work())
    assert model.progressed_during_scoring
    assert model.thread is not threading.current_thread()
    assert kept == kind.shape(make(), given)


def test_it_pickles_as_its_configuration(kind, make, given):
    back = pickle.loads(pickle.dumps(make(threshold=0.1)))
    assert (back.config, back.threshold) == (GIVEN_ORDER, 0.1)
    assert kind.ids(kind.shape(back, given)) == ["id-1", "id-3"]


def test_a_deep_copy_shares_a_model_that_cannot_be_pickled(make):
    component = make(model=WatchedModel())  # holds locks
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(component)
    assert copy.deepcopy(component).model is component.model
    assert copy.deepcopy(component) == component


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_the_frameworks_json_is_the_component_and_refuses_a_live_object(kind):
    config = ShapingConfig(pool_size=7, acceptance="greedy")
    back = kind.copied(kind.component(model="some/model", config=config, threshold=0.5))
    assert (back.model, back.config, back.threshold) == ("some/model", config, 0.5)
    for live in ({"model": FakeLanguageModel()}, {"answer": str.upper}):
        with pytest.raises((NotImplementedError, ValueError), match=r"implemented|as JSON"):
            kind.copied(kind.component(**{"model": "some/model", **live}))


def test_passages_are_embedded_once_for_all_calls_and_copies(kind, make, given):
    embedder = CountingEmbedder()
    component = make(config=RANKED, embedder=embedder)
    first = kind.shape(component, given)
    narrower = component.model_copy(update={"max_tokens": 60})
    for other in (component, narrower, copy.deepcopy(component)):
        assert kind.shape(other, given) == first
    assert len(embedder.embedded) == len(TEXTS)
    back = pickle.loads(pickle.dumps(component))
    assert kind.shape(back, given) == first
    assert len(back.embedder.embedded) == 2 * len(TEXTS)


def test_no_model_is_loaded_or_touched_at_construction(make):
    class Lazy(FakeLanguageModel):
        def __getattribute__(self, name):
            assert name not in ("layout", "max_tokens"), "loaded"
            return super().__getattribute__(name)

    for model in (Lazy(), "no/such-model", None):
        make(model=model)


def test_half_of_a_surrogate_pair_in_query_and_passage_is_shaped(kind, make, monkeypatch):
    texts = (*TEXTS[:3], f"{TEXTS[3]} \ud83d")
    monkeypatch.setitem(globals(), "TEXTS", texts)
    kept = kind.shape(make(config=RANKED.replace(pool_size=4)), kind.given(), f"{QUERY} \ude42")
    assert kind.ids(kept) == ["id-1", "id-3"]
    assert kind.text(kept[1]) == texts[3]


LONG = "The ferry leaves at nine. Maria does live now in the city of Lisbon. Sardines taste best."


def with_text(item, text):
    if isinstance(item, Document):
        return item.model_copy(update={"page_content": text})
    return NodeWithScore(node=item.node.model_copy(update={"text": text}), score=item.score)


@pytest.mark.parametrize("prune", [False, True])
def test_with_prune_only_sentences_that_help_stay_in_what_is_kept(kind, make, given, prune):
    before = with_text(given[0], LONG)
    (kept,) = kind.shape(make(prune=prune, top_k=1), [before])
    assert kind.text(kept) == (LONG.split(". ")[1] + "." if prune else LONG)
    assert kind.text(before) == LONG
    assert ("dropped" in kept.metadata["ecs"]) is prune
    assert kept.metadata["tag"] == "x"
    assert json.loads(json.dumps(kept.metadata)) == kept.metadata


def call(tool, **arguments):
    if hasattr(tool, "invoke"):
        return tool.invoke(arguments)
    return tool.call(**arguments).content


def test_an_agents_tool_gives_back_what_was_dropped(kind, make, given):
    component = make(prune=True, top_k=1)
    tool = component.restore_tool()
    assert getattr(tool, "name", None) or tool.metadata.name == "ecs_restore"
    (kept,) = kind.shape(component, [with_text(given[0], LONG), given[2]])
    dropped = kept.metadata["ecs"]["dropped"]
    assert set(dropped.values()) == {"The ferry leaves at nine.", "Sardines taste best."}
    assert all(call(tool, id=id) == text for id, text in dropped.items())
    listed = call(tool)
    assert TEXTS[2] in listed
    whole = next(line.partition(":")[0] for line in listed.splitlines() if TEXTS[2] in line)
    assert TEXTS[2] in call(tool, id=whole)
    assert call(copy.deepcopy(component).restore_tool(), id=whole) == call(tool, id=whole)
    assert TEXTS[2] not in call(pickle.loads(pickle.dumps(component)).restore_tool())


ASKED, REPLY = "Ana: I am back. What did the kids see?", "Ben: A blue whale."


def turns_of(kind, given, metadata):
    found = []
    for item, text, known in zip(given, (REPLY, ASKED), metadata, strict=False):
        changed = with_text(item, text)
        changed.metadata.update(known)
        found.append(changed)
    return found


@pytest.mark.parametrize(
    ("metadata", "read"),
    [
        (({"dia_id": "D1:8"}, {"dia_id": "D1:7"}), True),
        (({"session": 2, "index": 4}, {"session": 2, "index": 3}), True),
        (({"dia_id": "D1:9"}, {"dia_id": "D1:7"}), False),
        (({"dia_id": "D2:8"}, {"dia_id": "D1:7"}), False),
        (({"dia_id": "D1:8", "conversation": 1}, {"dia_id": "D1:7", "conversation": 2}), False),
        (({}, {}), False),
    ],
)
def test_a_reply_is_read_with_its_question_where_metadata_names_neighbours(
    kind, make, given, metadata, read
):
    model = FakeLanguageModel()
    kept = kind.shape(make(model=model), turns_of(kind, given, metadata))
    assert ("Ben: What did the kids see? A blue whale." in read_by(model)) is read
    assert kind.text(kept[0]) == REPLY


def test_a_function_names_the_turn_before_also_where_it_was_not_retrieved(kind, make, given):
    model = FakeLanguageModel()
    component = make(model=model, neighbours=lambda item: ASKED)
    kind.shape(component, turns_of(kind, given[:1], ({},)))
    assert "Ben: What did the kids see? A blue whale." in read_by(model)
    with pytest.raises(ConfigurationError, match="neighbours must be a function"):
        make(neighbours="before")


def test_a_whole_conversation_in_order_is_read_as_one_although_metadata_names_two_neighbours(
    kind, make, given
):
    asked = "Ana: Day {0}, {0} miles. What did you see?"
    texts = [line.format(n) for n in range(7) for line in (asked, "Ben: {0} whales.")]
    items = [with_text(copy.deepcopy(given[0]), text) for text in texts]
    for number in (0, 1):
        items[number].metadata["dia_id"] = f"D1:{number + 1}"
    model = FakeLanguageModel()
    kind.shape(make(model=model), items)
    assert all(f"Ben: What did you see? {n} whales." in read_by(model) for n in range(7))
