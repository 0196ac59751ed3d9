"""Shared fixtures and marks."""

import os
import re
from functools import lru_cache
from hashlib import sha256

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

if "PYTEST_XDIST_WORKER" in os.environ:
    # There is a worker per core already: threads of their own would only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")

OF_ALL = re.compile(r"^pytestmark = (.+)", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """Skip the import of a file whose tests do not run, because imports take seconds."""
    if collection_path.suffix != ".py":
        return None
    marks = re.findall(r"mark\.(\w+)", "".join(OF_ALL.findall(collection_path.read_text("utf-8"))))
    return any(f"not {mark}" in config.option.markexpr for mark in marks) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests that use a model fixture."""
    for item in items:
        if {"bundled_lm", "embedder", "tiny_lm"} & set(item.fixturenames):
            item.add_marker("model")


def pytest_generate_tests(metafunc):
    """Run the tests of a file with ``BOTH_ENGINES`` on both, but those that look at the file."""
    asks = "db" not in metafunc.definition._fixtureinfo.argnames
    if (
        getattr(metafunc.module, "BOTH_ENGINES", False)
        and "engine" in metafunc.fixturenames
        and asks
    ):
        server = pytest.param("postgres", marks=pytest.mark.slow)
        metafunc.parametrize("engine", ["sqlite", server])


@pytest.fixture(scope="session")
def postgres():
    """The address of a server with pgvector: that of the environment, or a private one."""
    if address := os.environ.get("ECS_PLUGINS_POSTGRES"):
        yield address
        return
    from benchmarks.private_server import private_server

    with private_server(flush=False) as server:
        yield server.address


@pytest.fixture
def engine():
    """Return the database engine of a memory."""
    return "sqlite"


@pytest.fixture
def located(engine, request):
    """Return the place of a memory: the path, or an address on the server."""
    made = set()

    def located_(path):
        if engine == "sqlite":
            return path
        schema = f"t{sha256(os.fsencode(path)).hexdigest()[:12]}"
        made.add(schema)
        server = request.getfixturevalue("postgres")
        return f"{server}{'&' if '?' in server else '?'}schema={schema}"

    yield located_
    if made:
        import psycopg

        with psycopg.connect(request.getfixturevalue("postgres"), autocommit=True) as connection:
            for schema in made:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture(scope="session", autouse=True)
def processor():
    """Every processor is one that ``dtype="auto"`` loads float32 on: its scores are exact."""
    from ecs_plugins.lm import devices

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "seconds_of_a_product", lambda _dtype: 1.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def commands():
    """The command line is built once: to read its annotations takes longer than most commands."""
    from typer import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "get_command", lru_cache(main.get_command))
        yield


@pytest.fixture(scope="session")
def bundled_lm():
    """The installed default model; never skipped, so that no run passes without it."""
    from ecs_plugins.errors import ModelError
    from ecs_plugins.lm.bundled import bundled_path
    from ecs_plugins.lm.local import LocalLM

    try:
        bundled_path()
    except ModelError as error:
        pytest.fail(f"{error} (or run the tests with: make test)", pytrace=False)
    return LocalLM.bundled()


@pytest.fixture(scope="session")
def embedder():
    """The default sentence embedder, of the ``offline`` extra."""
    from ecs_plugins.ranking.embedder import default_embedder

    return default_embedder()


@pytest.fixture(scope="session")
def tiny_lm():
    """Makes handles on a tiny random model of transformers."""
    from tests.unit.lm.tiny_models import local

    return local
