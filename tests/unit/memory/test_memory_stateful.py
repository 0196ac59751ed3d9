"""Random sequences of operations compared with a model in plain Python."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.ranking.embedder import FakeEmbedder

NAMESPACES = [("a",), ("a", "b"), ("a.b",), ("a%",)]
WORDS = ["boat", "mill", "cat", "snow", "blue", "old"]
namespaces = st.sampled_from(NAMESPACES)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


class MemoryMachine(RuleBasedStateMachine):
    """The model: per namespace the messages in the order in which they were said."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.said: dict[tuple[str, ...], dict[str, str]] = {}
        self.files = 0

    @initialize(capacity=st.integers(2, 6), every=st.integers(2, 6), merge=st.booleans())
    def begin(self, capacity, every, merge):
        self.config = MemoryConfig(
            hot_capacity=capacity,
            cold_capacity=3,
            sleep_every=every,
            rule="default" if merge else "paper",
        )
        self.open()

    def open(self):
        self.memory = EntropicMemory.open(
            self.folder / "memory.db",
            embedder=FakeEmbedder(32),
            config=self.config,
            store=StoreConfig(synchronous="normal"),
        )

    @rule(target=ids, namespace=namespaces, messages=st.lists(texts, min_size=1, max_size=4))
    def add(self, namespace, messages):
        names = self.memory.add(messages, namespace=namespace)
        self.said.setdefault(namespace, {}).update(zip(names, messages, strict=True))
        return multiple(*names)

    @rule(namespace=namespaces, query=texts)
    def recall(self, namespace, query):
        found = self.memory.recall(query, namespace=namespace, threshold=-1.0, k=5)
        said = self.said.get(namespace, {})
        assert [item.score for item in found] == sorted(
            (item.score for item in found), reverse=True
        )
        for item in found:
            assert item.text in said.values()
            assert set(item.provenance) <= set(said)
            assert item.text in {said[message] for message in item.provenance}

    @rule(namespace=namespaces)
    def sleep(self, namespace):
        report = self.memory.sleep(namespace)
        # A namespace is known once something was added; forgetting makes it unknown again.
        assert (report is None) == (namespace not in self.said)

    @rule(name=consumes(ids))
    def delete(self, name):
        for said in self.said.values():
            if name in said:
                receipt = self.memory.delete(name)
                assert receipt.messages == (name,)
                del said[name]
        assert self.memory.get(name) is None

    @rule(namespace=namespaces)
    def forget(self, namespace):
        receipt = self.memory.forget(namespace)
        assert set(receipt.messages) == set(self.said.pop(namespace, {}))

    @rule()
    def reopen(self):
        self.memory.close()
        self.open()

    @rule()
    def compact(self):
        self.memory.admin.compact()

    @rule()
    def export_and_import(self):
        self.files += 1
        file = self.folder / f"{self.files}.jsonl"
        self.memory.admin.export(file)
        with EntropicMemory.open(embedder=FakeEmbedder(32), config=self.config) as other:
            other.admin.import_(file)
            for namespace in self.said:
                assert other.messages(namespace) == self.memory.messages(namespace)
                assert [(m.id, m.text, m.provenance) for m in other.memories(namespace)] == [
                    (m.id, m.text, m.provenance) for m in self.memory.memories(namespace)
                ]
            assert other.admin.verify().ok

    @invariant()
    def everything_said_is_in_the_log_and_nothing_else(self):
        assert sorted(self.memory.namespaces()) == sorted(self.said)
        for namespace, said in self.said.items():
            log = self.memory.messages(namespace)
            assert {message.id: message.text for message in log} == said
            for message in log[-1:]:
                found = self.memory.get(message.id)
                assert found.tier is None
                assert found.namespace == namespace

    @invariant()
    def tiers_keep_their_capacity(self):
        for each in self.memory.admin.stats().namespaces:
            assert each.hot <= self.config.hot_capacity
            assert each.cold <= self.config.cold_capacity

    @invariant()
    def the_file_keeps_its_promises(self):
        assert self.memory.admin.verify().problems == ()

    def teardown(self):
        if hasattr(self, "memory"):
            self.memory.close()
        shutil.rmtree(self.folder, ignore_errors=True)


TestMemory = pytest.mark.slow(MemoryMachine.TestCase)
TestMemory.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
