import math
import pickle
import stat
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.reuse import Booking, Lease, Preparation, ReuseLedger
from tests.unit.values import changeable

from .conftest import count, note_prepared

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

    for number, tenant in enumerate(tenants, start=1):
        with opened(tenant) as ledger:
            count(ledger, "x'; --", number)
            note_prepared(ledger, "x'; --", KEY, number)
    for number, tenant in enumerate(tenants, start=1):
        with opened(tenant) as ledger:
            assert ledger.count("x'; --") == number
            assert ledger.prepared("x'; --") == {KEY: number}
    with opened(tenants[0]) as ledger:
        assert ledger.forget("x'; --")
        assert not ledger.forget("x'; --")
        assert ledger.prepared("x'; --") == {}
    now[0] = 3 * 86_400.0
    with opened(tenants[1]) as ledger:
        assert count(ledger, "y") == 1
        assert ledger.count("x'; --") == 0
        assert ledger.prepared("x'; --") == {}
    with opened(tenants[2]) as ledger:
        assert ledger.count("x'; --") == 3


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda ledger, path: ledger.count_query(""), InvalidInputError),
        (lambda ledger, path: pickle.dumps(ReuseLedger(":memory:")), TypeError),
        (lambda ledger, path: ReuseLedger(path, expire_seconds=0), ConfigurationError),
        (lambda ledger, path: ReuseLedger(path, namespace="team"), ConfigurationError),
    ],
)
def test_what_is_impossible_is_refused(ledger, tmp_path, wrong, error):
    with pytest.raises(error):
        wrong(ledger, tmp_path / "other.db")
    assert ledger.count("a") == 0


def book(ledger):
    for _ in range(25):
        count(ledger, "a")
        ledger.book("a", {KEY: Preparation(2.0, 0.0)}, [Booking(KEY, "tokens", 3.0, 4.0)])


@pytest.mark.slow
def test_processes_count_together_and_none_is_lost(ledger):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(book, [ledger] * 4))
    assert ledger.count("a") == 100
    assert ledger.prepared("a") == {KEY: 2.0}
    (spend,) = ledger.spent_by_tenants()
    assert (spend.queries, spend.cost, spend.baseline) == (100, 300.0, 400.0)


def test_a_relative_path_means_one_file_wherever_the_process_goes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with ReuseLedger("r.db") as ledger:
        monkeypatch.chdir("elsewhere")
        count(ledger, "a")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.fixture
def clocked(tmp_path, located):
    """A ledger of short times, and its clock."""
    now = [0.0]
    path = located(tmp_path / "r.db")
    with ReuseLedger(path, expire_seconds=10, clock=lambda: now[0]) as ledger:
        yield ledger, now


def test_expired_contexts_are_forgotten_when_new_ones_come(clocked):
    ledger, now = clocked
    for name in ("old", "older", "asked"):
        ledger.count_query(name)
        note_prepared(ledger, name, KEY, 1.0)
    now[0] = 10.0
    ledger.count_query("asked", game="F1 0.9")
    now[0] = 10.5
    for name in ("new", "newer"):
        ledger.count_query(name)
    assert [ledger.count(name) for name in ("old", "older", "asked", "new")] == [0, 0, 1, 1]
    assert not ledger.prepared("old")
    assert ledger.prepared("asked")


def test_a_gap_of_just_the_life_of_an_entry_lets_nothing_lapse(clocked):
    ledger, now = clocked
    for now[0], run in ((0.0, 1), (300.0, 2), (600.5, 1)):
        ahead = ledger.count_query("a", life=300, add=False)
        counted = ledger.count_query("a", life=300)
        assert ahead[:2] == counted[:2]
        assert counted.run == run


def test_the_usual_number_of_queries_is_a_decayed_geometric_mean(ledger):
    counts = [3, 1, 7, 20]
    logs = 0.0
    weight = 1.0
    for context, number in enumerate(counts):
        for _ in range(number):
            counted = ledger.count_query(f"c{context}")
        weight = weight * 0.95 + 1
        logs = logs * 0.95 + math.log(number)
    assert counted.usual == pytest.approx(math.exp(logs / weight))
    assert counted.usual_run == pytest.approx(counted.usual)
    ahead = ledger.count_query("new", add=False)
    assert ahead.usual == counted.usual
    assert ledger.count_query("c0", game="another").usual == 1.0
    assert ledger.within(("tenant",)).count_query("c0").usual == 1.0


@pytest.mark.parametrize("ahead", [61.0, 864_000.0])
def test_a_stored_time_that_lies_ahead_counts_as_now_and_is_overwritten(clocked, ahead):
    ledger, now = clocked
    now[0] = ahead
    ledger.count_query("a", life=300)
    note_prepared(ledger, "a", KEY, 5.0)
    now[0] = 0.5  # the clock is right again
    counted = ledger.count_query("a", life=300)
    assert counted.run == 2
    assert counted.preparations[KEY].age == 0
    now[0] = 400.0
    counted = ledger.count_query("a", life=300)
    assert counted.run == 1
    assert counted.preparations[KEY].age == 399.5


def test_a_difference_of_clocks_within_a_minute_is_kept(clocked):
    ledger, now = clocked
    now[0] = 59.0
    ledger.count_query("a", life=300)
    now[0] = 0.0
    ledger.count_query("a", life=300)
    now[0] = 358.0  # after the later of the two
    assert ledger.count_query("a", life=300).run == 3


def test_an_entry_that_was_written_for_an_hour_keeps_the_run_for_an_hour(clocked):
    ledger, now = clocked
    ledger.count_query("a", life=300)
    note_prepared(ledger, "a", KEY, 5.0, 3600.0)
    now[0] = 3000.0
    assert ledger.count_query("a", life=300).run == 2
    now[0] = 7000.0
    assert ledger.count_query("a", life=300).run == 1


def test_a_preparation_is_leased_to_one_process_until_it_ends_or_is_late(tmp_path, located):
    now = [0.0]
    path = located(tmp_path / "r.db")
    with (
        ReuseLedger(path, clock=lambda: now[0]) as one,
        ReuseLedger(path, clock=lambda: now[0]) as other,
    ):
        assert one.begin_preparation("a", KEY, 120) == Lease.NEW
        assert one.begin_preparation("a", KEY, 120) == Lease.OWN
        assert other.begin_preparation("a", KEY, 120) == Lease.TAKEN
        other.end_preparation("a", KEY)  # not its own
        assert other.begin_preparation("a", KEY, 120) == Lease.TAKEN
        now[0] = 121.0
        assert other.begin_preparation("a", KEY, 120) == Lease.NEW
        other.end_preparation("a", KEY)
        assert one.begin_preparation("a", KEY, 120) == Lease.NEW


def test_what_threads_share_cannot_be_changed():
    working = {"CallCounter", "ContextBuilder", "RoutedChain", "Router"}
    working |= {"_Calibration", "_Draft", "_Flight"}
    assert changeable("frontier") == working
