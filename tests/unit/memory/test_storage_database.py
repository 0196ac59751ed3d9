import gzip
import sqlite3
import threading
from pathlib import Path

import pytest

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.store import schema
from ecs_plugins.memory.store.database import Database

FIRST = Path(__file__).parents[2] / "fixtures" / "0.1.0" / "memory" / "first-schema.db.gz"


def test_an_upgrade_that_fails_leaves_the_old_file(db, monkeypatch):
    db.write_bytes(gzip.decompress(FIRST.read_bytes()))
    broken = (*schema.TABLES, "CREATE TABLE half_done (x)", "SELECT nothing")
    monkeypatch.setattr(schema, "TABLES", broken)
    with pytest.raises(StorageError):
        Database(db)
    connection = sqlite3.connect(db)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert not {"half_done", "tiers"} & tables


def test_a_file_of_a_newer_version_is_refused(db):
    Database(db).close()
    connection = sqlite3.connect(db)
    connection.execute("PRAGMA user_version=999")
    connection.close()
    with pytest.raises(StorageError, match="upgrade ecs-plugins"):
        Database(db)


def test_somebody_elses_database_is_refused_and_untouched(db):
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="something else"):
        Database(db)


def test_a_file_that_is_no_database_is_refused(db):
    db.write_bytes(b"plain text, long enough to be taken for a header " * 40)
    with pytest.raises(StorageError, match="not a database"):
        Database(db)


def test_a_path_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="make its directory writable"):
        Database(tmp_path / "file" / "memory.db")


def test_the_file_can_be_read_by_its_owner_only(db):
    database = Database(db)
    with database.write() as connection:
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    modes = {path.stat().st_mode & 0o777 for path in db.parent.iterdir()}
    database.close()
    assert modes == {0o600}


def test_readers_do_not_wait_for_a_writer(db):
    database, other = Database(db), Database(db)
    with database.write() as writer:
        writer.execute("INSERT INTO meta VALUES ('a', 'b')")
        with other.read() as reader:
            assert reader.execute("SELECT * FROM meta").fetchall() == []
        with database.read() as reader:  # a part of the transaction of its own thread
            assert reader.execute("SELECT * FROM meta").fetchall() == [("a", "b")]
    database.close()
    other.close()


def test_an_in_memory_database_is_one_for_all_threads():
    database = Database(":memory:")

    def write(number: int) -> None:
        with database.write() as connection:
            connection.execute("INSERT INTO meta VALUES (?, 'x')", (str(number),))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        assert connection.execute("SELECT count(*) FROM meta").fetchone() == (8,)
    database.close()


def test_a_closed_database_says_so(db):
    database = Database(db)
    database.close()
    with pytest.raises(StorageError, match="closed"), database.read():
        pass
