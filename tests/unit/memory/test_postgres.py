"""Memory on PostgreSQL: server, graph, and dying clients."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.reuse import Preparation, ReuseLedger
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.store import sleeps
from ecs_plugins.memory.store.engines import MEMORY_TABLES
from ecs_plugins.memory.store.items import NewItem
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.storage.addresses import parsed
from tests.unit.memory.factories import assert_current, stream

pytestmark = pytest.mark.slow


@pytest.fixture
def engine():
    return "postgres"


@pytest.fixture
def address(located, tmp_path):
    place = located(tmp_path / "memory.db")
    options = "-c%20geqo%3Doff%20-c%20jit%3Doff"
    return place.replace("schema=", f"options={options}&schema=")


@pytest.mark.parametrize("sessions", [[7, 7], [7, 8]])
def test_a_proxy_that_lends_sessions_is_refused_and_one_that_keeps_them_is_not(
    address, monkeypatch, sessions
):
    monkeypatch.setattr("ecs_plugins.storage.postgres._session", lambda _: sessions.pop(0))
    if sessions == [7, 7]:
        with pytest.raises(StorageError, match="pool_mode=session"):
            EntropicMemory.open(address, embedder=FakeEmbedder(32))
    else:
        EntropicMemory.open(address, embedder=FakeEmbedder(32)).close()
    assert sessions == []


@pytest.fixture
def on_server(address):
    """Runs a statement as a superuser, where the memory's tables are."""

    def run(sql):
        server, schema = parsed(address)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"SET search_path = {schema}, public")
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else None

    return run


@pytest.fixture
def owner(address, on_server):
    """The address of a role with a password, and of its own database, which has no pgvector."""
    _, schema = parsed(address)
    name = f"{schema}_guest"
    on_server(f"CREATE ROLE {name} LOGIN PASSWORD 'right'")
    on_server(f"CREATE DATABASE {name} OWNER {name}")
    of_role = re.sub("//.*@", f"//{name}:right@", address)
    yield urlsplit(of_role)._replace(path=name).geturl()
    on_server(f"DROP DATABASE {name}")
    on_server(f"DROP ROLE {name}")


def test_a_server_that_is_not_there_or_refuses_is_an_error_without_the_password(address, owner):
    elsewhere = {
        "/postgres": "/nowhere",
        "postgres:": "me:secret",
        "@.*": "@:9",
        "schema=": "x=",
    }
    places = [re.sub(old, new, address, count=1) for old, new in elsewhere.items()]
    places.append(owner.replace("right", "secret"))
    for place in places:
        refused = pytest.raises(
            (StorageError, ConfigurationError),
            match=r"check that the server runs|an option is unknown",
        )
        with refused as caught:
            EntropicMemory.open(place, embedder=FakeEmbedder(32))
        assert "secret" not in str(caught.value)
    assert "authentication failed" in str(caught.value)


def test_a_database_without_pgvector_is_left_alone_until_it_has_it(address, owner):
    with pytest.raises(StorageError, match="let a superuser run CREATE EXTENSION vector"):
        EntropicMemory.open(owner, embedder=FakeEmbedder(32))
    server, _ = parsed(address)
    theirs = urlsplit(owner).path[1:]
    with psycopg.connect(server, dbname=theirs, autocommit=True) as superuser:
        made = superuser.execute("SELECT FROM pg_namespace WHERE nspname ~ '^t'")
        assert made.rowcount == 0
        superuser.execute("CREATE EXTENSION vector")
    with EntropicMemory.open(owner, embedder=FakeEmbedder(32)) as memory:
        memory.add("the boat is blue")
        best, *_ = memory.recall("the boat")
        assert best.text == "the boat is blue"


def test_a_reader_writes_nothing(open_memory):
    with pytest.raises(StorageError, match="holds no memory"):
        open_memory(read_only=True)
    open_memory().add("the boat is blue")
    memory = open_memory(read_only=True)
    best, *_ = memory.recall("the boat")
    assert best.text == "the boat is blue"
    with pytest.raises(StorageError, match="reading only"):
        memory.add("more")
    (stats,) = memory.admin.stats().namespaces
    assert stats.messages == 1


def test_other_tables_or_pgvectors_are_refused(open_memory, on_server, address, monkeypatch):
    open_memory().add("the boat is blue")
    on_server("UPDATE versions SET version = 99")
    with pytest.raises(StorageError, match="upgrade ecs-plugins"):
        open_memory()
    on_server(f"UPDATE versions SET version = {MEMORY_TABLES.version}")
    monkeypatch.setattr("ecs_plugins.memory.store.engines._OLDEST", (99, 0))
    with pytest.raises(StorageError, match="install it on the server"):
        open_memory()
    with pytest.raises(ConfigurationError, match="plain name"):
        EntropicMemory.open(f'{address}"; --', embedder=FakeEmbedder(32))


LOST = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid != pg_backend_pid()
"""
FULL = """
    CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END$$;
    CREATE TRIGGER full_disk BEFORE UPDATE ON sleeps EXECUTE FUNCTION full_disk()
"""


@pytest.mark.parametrize("how", ["lost", "full"])
def test_a_sleep_phase_that_fails_changes_nothing(open_memory, on_server, monkeypatch, how):
    memory = open_memory()
    memory.add(["the boat is blue", "the boat is blue", "snow falls"])
    apply = sleeps.apply

    def losing(*args):
        report = apply(*args)
        on_server(LOST)
        return report

    if how == "full":
        on_server(FULL)
        problem = "disk is"
    else:
        monkeypatch.setattr(sleeps, "apply", losing)
        problem = "connection was lost"
    with pytest.raises(StorageError, match=problem):
        memory.sleep()
    monkeypatch.undo()
    assert memory.memories() == []
    assert memory.sleeps() == []
    assert len(memory.messages()) == 3
    assert memory.admin.verify().ok
    if how == "full":
        on_server("DROP TRIGGER full_disk ON sleeps")
    memory.sleep()
    assert "the boat is blue" in {kept.text for kept in memory.memories()}


def test_workers_share_due_sleeps_without_waiting(open_memory, address):
    with ThreadPoolExecutor(3) as threads:
        workers = [*threads.map(lambda _: open_memory(), range(3))]  # all make the tables
        first, second, third = workers
        first.add(["snow falls"] * 2, namespace=("0",))
        for number in range(1, 6):
            first.add(["snow falls"] * 3, namespace=(str(number),))
        with third._store.database.claim('["5"]'):
            slept = [*threads.map(lambda each: each.sleep_all(3), (first, second))]
    reports = [report for each in slept for report in each]
    places = sorted(report.namespace for report in reports)
    assert places == [("1",), ("2",), ("3",), ("4",)]
    left = [len(each.sleep_all(3)) for each in workers]
    assert left == [1, 0, 0]  # what was taken before


@pytest.fixture
def tenants(address, open_memory, on_server):
    """The addresses of a memory for roles that are made as docs/reference/postgresql.md says."""
    page = Path("docs/reference/postgresql.md").read_text("utf-8")
    (script,) = re.findall(r"(?s)```sql\n(.*?)```", page)
    _, schema = parsed(address)
    names = {"acme": "acme", 'q"': '"q"""', "ä%": '"ä%"'}
    script = script.replace("ecs_plugins", schema).replace("tenants", schema)
    *once, role, _ = script.split(";")
    open_memory().close()
    ReuseLedger(address).close()
    roles = [role.replace("acme", name) for name in names.values()]
    on_server(";".join([*once, *roles]))
    yield {name: re.sub("//.*@", f"//{quote(name)}:secret@", address) for name in names}
    for name in (*names.values(), schema):
        on_server(f"DROP OWNED BY {name}; DROP ROLE {name}")


def told_everything(where, name):
    """A tenant's memory with something in every table."""
    with ReuseLedger(where, namespace=(name,)) as ledger:
        point = ("full", "{}")
        ledger.count_query("a")
        ledger.book("a", {point: Preparation(1.0, 0.0)}, [])
        ledger.count_query("a", life=-1.0)  # which ends the run before
        ledger.begin_preparation("b", point, 600.0)
    memory = EntropicMemory.open(where, embedder=FakeEmbedder(32))
    said = ["I live in Rome.", "Snow falls.", "Snow falls."]
    memory.add(said, namespace=(name,), idempotency_key="first")
    memory.observe("Where?", "In Rome", namespace=(name,))
    memory.items.write([NewItem((name,), "key", {"a": "b"}, {"a": "b"})])
    memory.sleep((name,))
    return memory


def assert_sees_a_third(role, on_server, schema):
    """Check that a role sees one of three tenants in every table."""
    tables = on_server(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    for (name,) in tables:
        count = f"SELECT count(*) FROM {name}"
        (seen,) = role.execute(count).fetchone()
        ((there,),) = on_server(count)
        if name in ("meta", "versions"):
            assert seen == there
        else:
            assert (name, 3 * seen) == (name, there)
            assert seen or name in ("means", "spent", "outdated", "judged")


def test_whatever_a_role_asks_it_meets_the_rows_of_its_own_namespaces_only(
    open_memory, tenants, on_server
):
    memories = {name: told_everything(where, name) for name, where in tenants.items()}
    mine = memories["acme"]
    server, schema = parsed(tenants["acme"])
    own, *_ = mine.messages(("acme",))
    with psycopg.connect(server, autocommit=True) as role:
        role.execute(f"SET search_path = {schema}")
        assert_sees_a_third(role, on_server, schema)
        for change in ("namespaces SET key = '[]'", "items SET namespace = '[]'"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level"):
                role.execute(f"UPDATE {change}")
        assert role.execute("DELETE FROM versions").rowcount == 0
        role.execute("INSERT INTO meta VALUES ('scrub', '1') ON CONFLICT DO NOTHING")
        assert role.execute("DELETE FROM meta").rowcount == 0
        for value in ("0", "9", "1' || '000"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level"):
                role.execute(f"UPDATE meta SET value = '{value}' WHERE key = 'scrub'")
        for message in ("nobody", own.id):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level"):
                role.execute(
                    "INSERT INTO provenance SELECT %s, 'nobody', 1, min(id) FROM namespaces",
                    (message,),
                )
    with pytest.raises(StorageError, match="privilege"):
        mine.add("more", namespace=("ä%",))
    with pytest.raises(StorageError, match="only the owner"):
        mine.admin.compact()
    mine.forget(("acme",))
    everybody = open_memory()
    assert mine.namespaces() == []
    assert len(memories["ä%"].namespaces()) == 1
    assert len(everybody.namespaces()) == 2
    for memory in (*memories.values(), everybody):
        assert memory.admin.verify().ok


def test_a_group_owns_no_namespace_of_its_members(open_memory, tenants):
    for name, where in tenants.items():
        EntropicMemory.open(where, embedder=FakeEmbedder(32)).add("mine", namespace=(name,))
    server, schema = parsed(tenants["acme"])
    with psycopg.connect(server, autocommit=True) as role:
        role.execute(f"SET search_path = {schema}")
        role.execute(f"SET ROLE {schema}")
        assert role.execute("SELECT key FROM namespaces").fetchall() == [('["acme"]',)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level"):
            role.execute("INSERT INTO namespaces (key, created) VALUES (%s, 0)", (f'["{schema}"]',))


NUMBERED = {
    "namespaces": '(id, key, created) {} VALUES (%s, \'["acme","x"]\', 0)',
    "messages": "(seq, id, namespace, step, role, text, metadata, created, vector) {}"
    " SELECT %s, 'x', min(id), 1, 'user', 'x', '{{}}', 0, '' FROM namespaces",
    "items": "(row, namespace, key, value, created, updated) {}"
    " VALUES (%s, '[\"acme\"]', 'k', '{{}}', 0, 0)",
}


@pytest.mark.parametrize("table", NUMBERED)
@pytest.mark.parametrize("how", ["", "OVERRIDING SYSTEM VALUE"])
def test_no_role_takes_numbers_that_others_will_get(open_memory, tenants, table, how):
    acme = EntropicMemory.open(tenants["acme"], embedder=FakeEmbedder(32))
    acme.add("mine", namespace=("acme",))
    server, schema = parsed(tenants["acme"])
    with psycopg.connect(server, autocommit=True) as role:
        role.execute(f"SET search_path = {schema}")
        refused = (psycopg.errors.GeneratedAlways, psycopg.errors.InsufficientPrivilege)
        for ahead in range(2, 9):
            with pytest.raises((*refused, psycopg.errors.ObjectNotInPrerequisiteState)):
                role.execute(f"INSERT INTO {table} {NUMBERED[table].format(how)}", (ahead,))
    other = EntropicMemory.open(tenants['q"'], embedder=FakeEmbedder(32))
    other.add("mine", namespace=('q"',))
    other.items.write([NewItem(('q"',), "key", {"a": "b"}, {"a": "b"})])
    assert other.admin.verify().ok


def test_no_operation_of_a_tenant_locks_the_others(open_memory, tenants):
    acme = EntropicMemory.open(tenants["acme"], embedder=FakeEmbedder(32))
    patient = StoreConfig(sleep="manual", busy_timeout=1.0)
    others = [
        EntropicMemory.open(tenants['q"'], embedder=FakeEmbedder(32), store=patient),
        open_memory(store=patient),
    ]
    database = acme._store.database
    for scope in ((), ('q"',), ('q"', '["q\\""]')):
        with database.write(scope=scope):
            others[0].add("not kept waiting", namespace=('q"',))
            others[1].add("not kept waiting", namespace=("somebody",))
    with database.write(), pytest.raises(StorageError, match="holds the lock"):
        others[1].add("waits", namespace=("acme",))


def test_an_address_sets_number_and_name_of_connections(address):
    settings = "&pool_size=3&application_name=billing&options=-c%20statement_timeout%3D31s"
    bare = re.sub("&options=[^&]*", "", address)
    with EntropicMemory.open(bare + settings, embedder=FakeEmbedder(32)) as memory:
        database = memory._store.database
        with database.read() as connection:
            name = connection.execute("SHOW application_name").fetchone()
            timeout = connection.execute("SHOW statement_timeout").fetchone()
        assert name == ("billing",)
        assert timeout == ("31s",)
        assert database._pool.max_size == 3
    with pytest.raises(ConfigurationError, match="pool_size"):
        EntropicMemory.open(f"{bare}&pool_size=1", embedder=FakeEmbedder(32))


def test_text_that_the_server_cannot_store_is_refused(open_memory):
    memory = open_memory()
    with pytest.raises(InvalidInputError, match="cannot store"):
        memory.add(["fine", "a \0 byte"])
    assert memory.namespaces() == []


def test_writers_of_other_namespaces_do_not_wait(open_memory):
    a = ("a",)
    b = ("b",)
    one = open_memory()
    other = open_memory(store=StoreConfig(sleep="manual", busy_timeout=0.3))
    one.add("the boat is blue", namespace=a)
    with one._store.writing_to(a):
        other.add("snow falls", namespace=b)
        EntropicStore(other).put(b, "n", {"content": "snow stays"})
        other.items.write([NewItem(b, "key", {})], deletes=[(b, "n")])
        assert other.recall("boat", namespace=a)
        with pytest.raises(StorageError, match="busy_timeout"):
            other.add("more", namespace=a)
        with pytest.raises(StorageError, match="busy_timeout"):
            other.items.write([NewItem(b, "key", {}), NewItem(a, "key", {})])
        with pytest.raises(StorageError, match="busy_timeout"):
            other.forget(a)
        with pytest.raises(StorageError, match="busy_timeout"):
            other.forget(a, below=True)
        other.add("ice is blue", namespace=("b", "c"), at=1.0, ttl=1.0)
        assert len(other.admin.purge().messages) == 1  # of the tenants that it is in
        other.add("ice is blue", namespace=("b", "c"))
        assert other.forget(("b", "c"), below=True).namespaces == (("b", "c"),)
        (said,) = other.add("ice melts", namespace=b)
        other.update(said, text="ice is cold")
        assert other.delete(said).messages == (said,)
        assert other.forget(b).namespaces == (b,)
    other.add("more", namespace=a)
    assert len(one.messages(a)) == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_large_namespace_is_searched_through_the_graph_and_finds_the_same(
    open_memory, tmp_path, monkeypatch, seed
):
    config = MemoryConfig(hot_capacity=500, cold_capacity=50)
    memory = open_memory(config=config)
    monkeypatch.setattr("ecs_plugins.memory.store.index_postgres._LARGE", 40)
    said = stream(seed, 90)
    for start in range(0, 90, 30):
        memory.add(said[start : start + 30])
        memory.recall("old Quilla")
    memory.sleep()
    ids = [message.id for message in memory.messages()]
    memory.delete(*ids[::7])
    assert_current(memory)
    found = answers(memory)
    monkeypatch.undo()
    assert found == answers(memory)


def answers(memory):
    """The ids that some questions recall."""
    ids = []
    for question in ("is the boat blue?", "snow in winter", "who burned down", "Quilla at noon"):
        recalled = memory.recall(question, k=9, record=False)
        ids.append([item.id for item in recalled])
    return ids


def test_a_server_needs_no_checksums_of_rows_and_verify_warns_without_its_own(
    open_memory, on_server
):
    memory = open_memory()
    memory.add("the boat is blue")
    memory.sleep()
    columns = on_server("SELECT attname FROM pg_attribute WHERE attname LIKE '%@_crc' ESCAPE '@'")
    assert columns == []
    ((state,),) = on_server("SHOW data_checksums")
    found = memory.admin.verify()
    assert found.ok
    assert bool(found.warnings) == (state == "off")
