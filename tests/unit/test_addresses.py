"""Addresses of databases: accepted, refused, and shown without secrets."""

from pathlib import Path

import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.storage.addresses import is_address, parsed, pool_size, without_password


@pytest.mark.parametrize(
    "address",
    ["postgresql://h/db", "postgres://h/db", "postgresql+psycopg://h/db", "POSTGRESQL://h/db"],
)
def test_every_spelling_of_a_server_is_read_alike(address):
    assert is_address(address)
    assert parsed(address) == ("postgresql://h/db", "ecs_plugins")
    assert without_password(address) == "postgresql://h/db"


@pytest.mark.parametrize(
    "address",
    [
        "mysql://u:hunter2@h/db",
        "sqlite:///agents.db",
        "postgresql+asyncpg://h/db",
        "file:///agents.db",
        Path("postgresql://u:hunter2@h/db"),
        " mysql://u:hunter2@h/db",
        "jdbc:postgresql://u:hunter2@h/db",
        "postgresql:/u:hunter2@h/db",
        "postgresql//u:hunter2@h/db",
        "mysql:u:hunter2@h/db",
        "u:hunter2@h/db",
    ],
)
def test_an_address_of_another_kind_is_refused(address):
    with pytest.raises(ConfigurationError) as refused:
        is_address(address)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "path", ["agents.db", ":memory:", "C:/agents.db", Path("a:b"), "a/b://c", "a:b.db"]
)
def test_a_path_is_no_address(path):
    assert not is_address(path)


@pytest.mark.parametrize(
    "secret", ["hunt%er", "hunt er", "hunt#er", "hunt/er", "hunt?er", "hunt@er"]
)
def test_a_password_of_any_characters_is_used_and_not_shown(secret):
    from psycopg.conninfo import conninfo_to_dict

    address = f"postgresql://u:{secret}@127.0.0.1:1/db?schema=mine&sslmode=disable"
    server, schema = parsed(address)
    assert schema == "mine"
    assert conninfo_to_dict(server)["password"] == secret
    shown = without_password(address)
    assert shown == "postgresql://u@127.0.0.1:1/db?schema=mine&sslmode=disable"


@pytest.mark.parametrize(
    "address",
    ["postgresql://u@h/db?sslpassword=hunter2", "postgresql://u@h/db?password=hunter2&schema=mine"],
)
def test_options_that_may_be_secret_are_not_shown(address):
    assert "hunter2" not in without_password(address)
    assert "hunter2" in parsed(address)[0]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:hunter2/x?n=t@h/db",
        "postgresql://u:x@h:hunter2/db",
        "postgresql://u:hunter2@h/db?unknown=hunter2",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_secrets(address):
    with pytest.raises(ConfigurationError) as refused:
        parsed(address)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_options_of_the_package_do_not_reach_libpq():
    address = "postgresql://h/db?pool_size=4&schema=mine&application_name=a@b"
    assert parsed(address) == ("postgresql://h/db?application_name=a%40b", "mine")
    assert pool_size(address) == 4
    with pytest.raises(ConfigurationError, match="at least 2"):
        pool_size("postgresql://h/db?pool_size=1")
