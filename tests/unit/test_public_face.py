import subprocess
import sys

import pytest

import ecs_plugins

HEAVY = ("torch", "transformers", "langchain_core", "llama_index", "faiss", "sklearn")


@pytest.mark.parametrize("module", ["ecs_plugins", "ecs_plugins.lm"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_exported_name_resolves() -> None:
    for name in ecs_plugins.__all__:
        assert getattr(ecs_plugins, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        ecs_plugins.no_such_name  # noqa: B018
