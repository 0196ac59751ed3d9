"""Shared fixtures."""

import pytest


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
