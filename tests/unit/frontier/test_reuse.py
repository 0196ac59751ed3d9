import pickle
import stat
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier import forecast
from ecs_plugins.frontier.forecast import ReuseModel, fit_reuse
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.router_config import RouterConfig
from ecs_plugins.frontier.routing import Router
from tests.unit.values import changeable

BOTH_ENGINES = True
KEY = ("memory_compression", '{"ratio":0.25}')


def test_a_directory_is_refused_and_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(StorageError, match="directory"):
        ReuseLedger(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_tenants_are_apart_and_what_is_forgotten_or_expired_is_gone(tmp_path, located):
    now = [0.0]
    tenants = [("a",), ("a", "b"), ("a/b",)]

    def opened(tenant):
        return ReuseLedger(
            located(tmp_path / "r.db"),
            namespace=tenant,
            expire_seconds=2 * 86_400.0,
            clock=lambda: now[0],
        )

    for count, tenant in enumerate(tenants, start=1):
        with opened(tenant) as ledger:
            ledger.record("x'; --", count)
            ledger.mark_prepared("x'; --", KEY, count)
    for count, tenant in enumerate(tenants, start=1):
        with opened(tenant) as ledger:
            assert ledger.count("x'; --") == count
            assert len(ledger) == 1
            assert ledger.prepared("x'; --") == {KEY: count}
    with opened(tenants[0]) as ledger:
        assert ledger.forget("x'; --")
        assert not ledger.forget("x'; --")
        assert ledger.prepared("x'; --") == {}
        assert len(ledger) == 0
    now[0] = 3 * 86_400.0
    with opened(tenants[1]) as ledger:
        assert ledger.record("y") == 1
        if "tidy" in ledger._threads:  # a file is tidied off the query's way
            ledger._threads["tidy"].join()
        assert ledger.count("x'; --") == 0
        assert ledger.prepared("x'; --") == {}
    with opened(tenants[2]) as ledger:
        assert ledger.count("x'; --") == 3


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda ledger, path: ledger.record(""), InvalidInputError),
        (lambda ledger, path: ledger.record("a", 0), InvalidInputError),
        (lambda ledger, path: pickle.dumps(ReuseLedger(":memory:")), TypeError),
        (lambda ledger, path: ReuseLedger(path, idle_seconds=0), ConfigurationError),
        (lambda ledger, path: ReuseLedger(path, expire_seconds=60), ConfigurationError),
        (lambda ledger, path: ReuseLedger(path, namespace="team"), ConfigurationError),
    ],
)
def test_what_is_impossible_is_refused(ledger, tmp_path, wrong, error):
    with pytest.raises(error):
        wrong(ledger, tmp_path / "other.db")
    assert len(ledger) == 0


def count(ledger):
    for _ in range(25):
        ledger.record("a")
        ledger.observe(KEY, "cost", 1.0)
        ledger.mark_prepared("a", KEY, 2.0)


@pytest.mark.slow
def test_processes_count_together_and_none_is_lost(ledger):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(count, [ledger] * 4))
    assert ledger.count("a") == 100
    assert ledger.prepared("a") == {KEY: 2.0}
    assert ledger.observed("cost") == {KEY: (100, 1.0, 0.0)}


def simulate(a, b, contexts, seed=0):
    rng = np.random.default_rng(seed)
    stops = rng.beta(a, b, contexts)
    counts = rng.geometric(np.clip(stops, 1e-9, 1))
    return counts.tolist()


@pytest.mark.parametrize(("a", "b"), [(3.0, 6.0), (6.0, 2.0), (1.5, 4.0)])
def test_the_fit_recovers_the_distribution_it_came_from(a, b):
    counts = simulate(a, b, 4000)
    model = fit_reuse(Counter(counts), {})
    for seen in (1, 3, 10):
        going_on = b + seen - 1
        share = going_on / (a + going_on)
        assert model.remaining(seen, 1) == pytest.approx(share, abs=0.035)


def test_contexts_that_may_go_on_do_not_count_as_ended():
    counts = simulate(3.0, 12.0, 3000)
    rng = np.random.default_rng(1)
    ended = Counter()
    alive = Counter()
    # How far a context has come when we look depends on its age, not on where it will end.
    ages = rng.integers(1, 12, len(counts)).tolist()
    for count, age in zip(counts, ages, strict=True):
        if count > age:
            alive[age] += 1
        else:
            ended[count] += 1
    censored = fit_reuse(ended, alive)
    naive = fit_reuse(ended + alive, {})
    truth = 12.0 / 2.0
    own_error = abs(censored.remaining(1) - truth)
    naive_error = abs(naive.remaining(1) - truth)
    assert own_error < naive_error


def test_a_context_asked_often_is_expected_to_be_asked_more(tmp_path, located):
    now = [0.0]
    with ReuseLedger(located(tmp_path / "r.db"), idle_seconds=10, clock=lambda: now[0]) as ledger:
        for index, count in enumerate(simulate(2.5, 4.0, 300)):
            ledger.record(f"c{index}", queries=count)
        now[0] = 100.0
        model = ledger.model()
        new = model.expected(1)
        busy = model.expected(30)
        assert busy > 3 * new
        # Posterior mean of the model that made the data: (4 + n - 1) / 1.5.
        assert new == pytest.approx(4 / 1.5, rel=0.4)
        assert busy == pytest.approx(33 / 1.5, rel=0.4)


def test_a_relative_path_means_one_file_wherever_the_process_goes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with ReuseLedger("r.db") as ledger:
        monkeypatch.chdir("elsewhere")
        ledger.latest_model()
        ledger._threads["fit"].join()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_no_query_waits_for_a_fit(frontier, ledger, monkeypatch):
    for index in range(30):
        ledger.record(f"c{index}", queries=200)
    go = threading.Event()
    fit = forecast.fit_carefully

    def waiting(*counts):
        go.wait(60)
        return fit(*counts)

    monkeypatch.setattr(forecast, "fit_carefully", waiting)
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decision = router.route(context_id="a")
    assert decision.strategy == "tfidf"
    go.set()
    ledger._threads["fit"].join()
    decision = router.route(context_id="a")
    assert decision.strategy == "memory"


def test_the_model_is_fitted_again_by_time_and_with_more_to_learn_from(tmp_path, located):
    now = [0.0]
    with ReuseLedger(located(tmp_path / "r.db"), idle_seconds=10, clock=lambda: now[0]) as ledger:
        assert 0 < ledger.model().expected(1) < 20  # a weak prior
        for index in range(30):
            ledger.record(f"c{index}", queries=3)
        model = ledger.model()
        assert model.contexts == 30
        assert model.ended == 0
        now[0] = 4000.0
        assert ledger.model().ended == 1


@pytest.fixture
def clocked(tmp_path, located):
    """A ledger of short times, and its clock."""
    now = [0.0]
    path = located(tmp_path / "r.db")
    with ReuseLedger(path, idle_seconds=10, expire_seconds=10, clock=lambda: now[0]) as ledger:
        yield ledger, now


def test_a_fit_is_due_after_a_tenth_of_the_idle_time_or_with_a_tenth_more_contexts(clocked):
    ledger, now = clocked
    for index in range(10):
        ledger.record(f"c{index}")
    assert ledger.model().contexts == 10
    ledger.record("a tenth more")
    assert ledger.model().contexts == 10
    now[0] = 1.0
    assert ledger.model().contexts == 10
    now[0] = 1.5
    assert ledger.model().contexts == 11


def test_only_a_first_query_is_something_new_to_learn_from(ledger):
    for context in ("a", "a", "b", "a"):
        ledger.record(context)
    assert ledger.unfitted == 2


def test_what_has_expired_is_forgotten_after_more_than_an_hour(clocked):
    ledger, now = clocked
    ledger.record("old")
    for now[0], kept in ((3600.0, 1), (3600.5, 0)):
        ledger.record("new")
        for thread in ledger._threads.values():
            thread.join()
        assert ledger.count("old") == kept


def test_a_gap_of_just_the_life_of_an_entry_lets_nothing_lapse(clocked):
    ledger, now = clocked
    for now[0], run, lapses in ((0.0, 1, 0), (300.0, 2, 0), (600.5, 1, 1)):
        ahead = ledger.count_query("a", life=300, add=False)
        counted = ledger.count_query("a", life=300)
        assert ahead == counted
        assert counted.run == run
        assert counted.lapses == lapses


def test_runs_are_learned_where_entries_of_a_cache_lapse(clocked):
    ledger, now = clocked
    ledger.record("a")
    assert ledger.model().runs is None
    now[0] = 3600.5
    assert ledger.model(life=300).runs is not None


def test_a_context_may_be_idle_after_less_than_a_second():
    with ReuseLedger(":memory:", idle_seconds=0.5, expire_seconds=0.5) as ledger:
        assert ledger.spent_today("tokens") == 0


@pytest.mark.parametrize(("a", "b"), [(0.4, 3.0), (1.0, 1.0), (2.5, 0.7), (8.0, 20.0)])
def test_the_forecast_equals_the_plain_sum_of_survival_probabilities(a, b):
    model = ReuseModel(a, b)
    for seen in (1, 7):
        for horizon in (1, 10, 400):
            total = 0.0
            alive = 1.0
            for k in range(horizon):
                going_on = b + seen - 1 + k
                alive *= going_on / (a + going_on)
                total += alive
            expected = model.remaining(seen, horizon)
            assert expected == pytest.approx(total, rel=1e-4)


def test_what_has_expired_is_looked_for_once_an_hour(monkeypatch):
    now = [0.0]
    looked = []
    with ReuseLedger(":memory:", clock=lambda: now[0]) as ledger:
        monkeypatch.setattr(ledger, "_in_background", lambda name, _: looked.append(name))
        for seconds in (0.0, 10.0, 3600.0, 3601.0, 3700.0, 7300.0):
            now[0] = seconds
            ledger._tidy_when_due(seconds)
    assert looked == ["tidy"] * 3


def test_what_threads_share_cannot_be_changed():
    working = {"CallCounter", "ContextBuilder", "Router", "_Calibration", "_Preparation"}
    assert changeable("frontier") == working
