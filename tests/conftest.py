"""Shared fixtures, and what ``-m "not model"`` leaves out."""

import re

import pytest

OF_ALL = re.compile(r"^pytestmark = (.+)", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """Leave unread a file whose tests do not run: what it imports takes seconds."""
    if collection_path.suffix != ".py":
        return None
    marks = re.findall(r"mark\.(\w+)", "".join(OF_ALL.findall(collection_path.read_text("utf-8"))))
    return any(f"not {mark}" in config.option.markexpr for mark in marks) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what asks for a model by a fixture."""
    for item in items:
        if {"bundled_lm", "embedder", "tiny_lm"} & set(item.fixturenames):
            item.add_marker("model")


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
