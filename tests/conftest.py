"""Shared fixtures, and what ``-m "not model"`` leaves out."""

import re

import pytest

OF_MODELS = re.compile(r"^pytestmark = .*mark\.model\b", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """Leave out unread what brings torch and transformers along for tests that do not run."""
    if "not model" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return bool(OF_MODELS.search(collection_path.read_text("utf-8"))) or None


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
