"""Any sequence of queries, answers, deletions and restarts: the ledger and the router remember."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ecs_plugins.frontier import EfficiencyFrontier, Router, RouterConfig, StrategyPoint
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.tokens import Role, Stage, TokenLedger

POINTS = [
    StrategyPoint("full_context", {}, 0.8, 0, 600),
    StrategyPoint("memory_compression", {"ratio": 0.5}, 0.8, 1500, 100),
    StrategyPoint("bm25", {"depth": 4}, 0.5, 0, 50),
]
DAY = 86_400.0
TENANTS = [("a",), ("a", "b"), ("a/b",)]
tenants = st.sampled_from(TENANTS)
contexts = st.sampled_from(["x", "y", "x'; --"])
Known = tuple[tuple[str, ...], str]


class RoutingMachine(RuleBasedStateMachine):
    """The model: queries and their time per tenant and context, and what is prepared for it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.now = 0.0
        self.frontier = EfficiencyFrontier(POINTS)
        self.counts: dict[Known, int] = {}
        self.seen: dict[Known, float] = {}
        self.ready: dict[Known, set] = {}
        self.open()

    def open(self) -> None:
        self.routers = {
            tenant: Router(
                self.frontier,
                RouterConfig(target_f1=0.75),
                ledger=ReuseLedger(
                    self.folder / "reuse.db",
                    namespace=tenant,
                    expire_seconds=30 * DAY,
                    clock=lambda: self.now,
                ),
            )
            for tenant in TENANTS
        }

    @rule(tenant=tenants, context=contexts, answered=st.booleans(), stage1=st.integers(0, 1))
    def ask(self, tenant, context, answered, stage1):
        router, known = self.routers[tenant], (tenant, context)
        decision = router.route(context_id=context)
        assert decision.prepared == frozenset(self.ready.get(known, ()))
        self.counts[known] = self.counts.get(known, 0) + 1
        self.seen[known] = self.now
        tokens = TokenLedger({(Stage.QUERY, Role.ANSWER_INPUT): 90})
        if stage1:
            tokens.book(Stage.PREPARE, Role.COMPRESS_INPUT, 1500)
        settled = router.settle(decision, tokens, context_id=context, answered=answered)
        assert not settled.ledger_error
        if stage1:
            self.ready.setdefault(known, set()).add(decision.point.key)

    @rule(tenant=tenants, context=contexts)
    def a_dry_run_changes_nothing(self, tenant, context):
        self.routers[tenant].route(context_id=context, count=False)

    @rule(tenant=tenants, context=contexts, reuse=st.integers(1, 1000))
    def a_known_reuse_is_decided_as_by_the_frontier(self, tenant, context, reuse):
        ready = frozenset(self.ready.get((tenant, context), ()))
        decision = self.routers[tenant].route(context_id=context, reuse=reuse, count=False)
        alone = self.frontier.decide(reuse=reuse, prepared=ready, target_f1=0.75)
        assert (decision.point, decision.effective) == (alone.point, alone.effective)

    @rule(tenant=tenants, context=contexts)
    def forget(self, tenant, context):
        known = tenant, context
        assert self.routers[tenant].ledger.forget(context) == (known in self.counts)
        self.drop(known)

    @precondition(lambda self: self.counts)
    @rule(days=st.integers(1, 40))
    def time_passes(self, days):
        self.now += days * DAY
        self.open()  # so that each looks for what has expired at its next query
        for known in [known for known, at in self.seen.items() if at < self.now - 30 * DAY]:
            self.drop(known)
        for tenant, router in self.routers.items():
            router.ledger.record("clock")
            self.counts[tenant, "clock"] = self.counts.get((tenant, "clock"), 0) + 1
            self.seen[tenant, "clock"] = self.now

    def drop(self, known: Known) -> None:
        for table in (self.counts, self.seen, self.ready):
            table.pop(known, None)

    @rule()
    def reopen(self):
        for router in self.routers.values():
            router.ledger.close()
        self.open()

    @invariant()
    def each_tenant_knows_its_own_and_nothing_else(self):
        for tenant, router in self.routers.items():
            own = {context: n for (of, context), n in self.counts.items() if of == tenant}
            assert len(router.ledger) == len(own)
            assert {context: router.ledger.count(context) for context in own} == own

    def teardown(self):
        for router in self.routers.values():
            router.ledger.close()
        shutil.rmtree(self.folder, ignore_errors=True)


TestRouting = pytest.mark.slow(RoutingMachine.TestCase)
TestRouting.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
