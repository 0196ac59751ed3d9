"""Preparations of chains: keyed by all that they depend on, looked up first, made once."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import Document as LlamaDocument

from ecs_plugins.frontier import EfficiencyFrontier, ReuseLedger, StrategyPoint
from ecs_plugins.frontier.chains import fingerprint
from ecs_plugins.langchain import FrontierRouter, RoutedChain
from ecs_plugins.llama_index import FrontierQuery, FrontierQueryEngine, FrontierSelector

BOTH_ENGINES = True
FRONTIER = EfficiencyFrontier(
    [StrategyPoint("full", {}, 0.84, 0, 1000), StrategyPoint("notes", {}, 0.80, 4000, 50)]
)
BATCH = 16


class Say(CustomQueryEngine):
    text: str

    def custom_query(self, query_str):
        return self.text


class LangChain:
    def router(self, text, prepare, *, ledger=None, **notes):
        def prepared(given):
            return prepare(given["documents"][0].page_content)

        async def aprepared(given):
            return await prepare(given["documents"][0].page_content)

        stage1 = RunnableLambda(aprepared if asyncio.iscoroutinefunction(prepare) else prepared)
        return FrontierRouter(
            frontier=FRONTIER,
            chains=[
                RoutedChain("full", answer=RunnableLambda(lambda _: "full")),
                RoutedChain(
                    "notes",
                    prepare=stage1,
                    answer=RunnableLambda(lambda given: given["prepared"]),
                    **notes,
                ),
            ],
            documents=[Document(text)],
            context_id="handbook",
            target_f1=0.7,
            ledger=ledger,
        )

    def ask(self, router, tenant=(), reuse=40):
        config = {"configurable": {"namespace": tenant, "reuse": reuse}}
        return router.invoke("Who?", config)

    async def aask(self, router, tenant=()):
        config = {"configurable": {"namespace": tenant, "reuse": 40}}
        return await router.ainvoke("Who?", config)


class LlamaIndex:
    def router(self, text, prepare, *, ledger=None, **notes):
        def prepared(nodes):
            return prepare(nodes[0].get_content())

        nodes = [LlamaDocument(text=text)]
        return FrontierQueryEngine(
            FrontierSelector(FRONTIER, context_id="handbook", target_f1=0.7, ledger=ledger),
            [
                RoutedChain("full", answer=lambda _: Say(text="full"), nodes=nodes),
                RoutedChain(
                    "notes",
                    prepare=prepared,
                    answer=lambda value: Say(text=value),
                    nodes=nodes,
                    **notes,
                ),
            ],
        )

    def ask(self, router, tenant=(), reuse=40):
        return str(router.query(FrontierQuery("Who?", reuse=reuse, namespace=tenant)))

    async def aask(self, router, tenant=()):
        return str(await router.aquery(FrontierQuery("Who?", reuse=40, namespace=tenant)))


@pytest.fixture(params=[LangChain, LlamaIndex], ids=lambda kind: kind.__name__)
def kind(request):
    return request.param()


class Counting:
    """A stage 1 that takes a while and counts how often it runs."""

    def __init__(self):
        self.times = 0

    def __call__(self, text):
        self.times += 1
        time.sleep(0.05)
        return f"notes of {text}"


def test_tenants_of_one_router_are_never_mixed(kind, tmp_path, located):
    prepare = Counting()
    with ReuseLedger(located(tmp_path / "r.db")) as ledger:
        router = kind.router("mill", prepare, ledger=ledger, directory=str(tmp_path / "kept"))
        for times, tenant in ((1, ("acme",)), (2, ("globex",)), (3, ("acme", "x")), (3, ("acme",))):
            assert kind.ask(router, tenant) == "notes of mill"
            assert prepare.times == times
        assert ledger.count("handbook") == 0
        assert ledger.within(("acme",)).count("handbook") == 2


def test_edited_documents_are_prepared_anew(kind, tmp_path):
    for text in ("the fee is 10", "the fee is 25"):
        router = kind.router(text, Counting(), directory=str(tmp_path))
        assert kind.ask(router) == f"notes of {text}"


def test_another_prompt_is_prepared_anew_and_the_same_is_found(kind, tmp_path):
    def prompted(prompt, made):
        def prepare(text):
            made.append(text)
            return prompt + text

        return prepare

    made = []
    for prompt, expected in (("one ", 1), ("two ", 2), ("one ", 2)):
        calls = []
        router = kind.router("mill", prompted(prompt, calls), directory=str(tmp_path))
        assert kind.ask(router) == f"{prompt}mill"
        made += calls
        assert len(made) == expected


def test_a_version_names_the_code_in_place_of_its_hash(kind, tmp_path):
    for version, code, expected in (
        ("1", "a ", "a mill"),
        ("1", "b ", "a mill"),
        ("2", "b ", "b mill"),
    ):
        router = kind.router(
            "mill", lambda text, code=code: code + text, version=version, directory=str(tmp_path)
        )
        assert kind.ask(router) == expected


def test_a_preparation_that_another_process_forgot_is_not_sunk(kind, tmp_path):
    for reuse, expected in ((40, "notes of mill"), (1, "full")):
        with ReuseLedger(tmp_path / "r.db") as ledger:
            router = kind.router("mill", Counting(), ledger=ledger)  # without a directory
            assert kind.ask(router, reuse=reuse) == expected


def test_threads_and_two_workers_prepare_a_context_once(kind, tmp_path, located, monkeypatch):
    monkeypatch.setattr("ecs_plugins.frontier.reuse.BUSY_SECONDS", 10.0)
    prepare = Counting()
    path = located(tmp_path / "r.db")
    workers = [
        kind.router("mill", prepare, ledger=ReuseLedger(path), directory=str(tmp_path / "kept"))
        for _ in range(2)
    ]
    with ThreadPoolExecutor(2 * BATCH) as pool:
        answers = list(pool.map(kind.ask, workers * BATCH))
    assert prepare.times == 1
    assert set(answers) <= {"full", "notes of mill"}
    assert kind.ask(workers[1]) == "notes of mill"


async def test_a_preparation_that_is_only_async_is_made_once_by_tasks_and_calls(kind, tmp_path):
    made = []

    async def prepare(text):
        made.append(text)
        await asyncio.sleep(0.05)
        return f"notes of {text}"

    router = kind.router("mill", prepare)
    answers = await asyncio.gather(*[kind.aask(router) for _ in range(BATCH)])
    assert set(answers) == {"notes of mill"}
    assert len(made) == 1
    answer = await asyncio.to_thread(kind.ask, router, ("acme",))
    assert answer == "notes of mill"
    assert len(made) == 2


def test_after_a_failure_the_next_query_prepares(kind, tmp_path):
    is_down = [True]

    def prepare(text):
        if is_down:
            is_down.pop()
            raise RuntimeError("the provider is down")
        return f"notes of {text}"

    with ReuseLedger(tmp_path / "r.db") as ledger:
        router = kind.router("mill", prepare, ledger=ledger)
        with pytest.raises(RuntimeError, match="down"):
            kind.ask(router)
        assert kind.ask(router) == "notes of mill"


def test_the_input_of_a_query_names_no_tenant(tmp_path):
    prepare = Counting()
    router = LangChain().router("mill", prepare)
    LangChain().ask(router, ("acme",))
    router.invoke({"question": "Who?", "namespace": ("acme",), "reuse": 40})
    assert prepare.times == 2


PROMPT = "one"


def uses_a_global(text):
    return PROMPT + text


def test_a_fingerprint_covers_prompts_models_and_globals(monkeypatch):
    def prepare(prompt):
        return lambda text: prompt + text

    model = FakeListChatModel(responses=["a"])
    known = [
        fingerprint(prepare("one")),
        fingerprint(prepare("two")),
        fingerprint(RunnableLambda(prepare("one")) | model),
        fingerprint(RunnableLambda(prepare("one")) | FakeListChatModel(responses=["b"])),
        fingerprint(uses_a_global),
        fingerprint(Say(text="a")),
    ]
    assert len(set(known)) == len(known)
    assert fingerprint(prepare("one")) == known[0]
    assert fingerprint(RunnableLambda(prepare("one")) | model) == known[2]
    monkeypatch.setitem(globals(), "PROMPT", "two")
    assert fingerprint(uses_a_global) != known[4]
