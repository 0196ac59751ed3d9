import importlib
import pkgutil
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "faiss",
    "sklearn",
    "langchain_core",
    "langchain_classic",
    "langgraph",
    "llama_index",
)


PACKAGES = (
    "ecs_plugins",
    "ecs_plugins.frontier",
    "ecs_plugins.langchain",
    "ecs_plugins.langgraph",
    "ecs_plugins.llama_index",
    "ecs_plugins.lm",
    "ecs_plugins.memory",
    "ecs_plugins.ranking",
    "ecs_plugins.shaping",
)


def test_importing_and_looking_for_models_load_nothing_heavy() -> None:
    code = f"""
import sys, {", ".join(PACKAGES)}
from ecs_plugins.ranking.embedder import FakeEmbedder, SentenceTransformerEmbedder
from ecs_plugins.lm.bundled import status
SentenceTransformerEmbedder(), FakeEmbedder().embed_query("x"), status()
print([m for m in {HEAVY!r} if m in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("module", PACKAGES)
def test_every_exported_name_resolves_and_is_listed(module: str) -> None:
    package = importlib.import_module(module)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert dir(package) == sorted(package.__all__)
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert not modules & (set(package.__all__) - {"errors"}), "hidden by a module of its name"
