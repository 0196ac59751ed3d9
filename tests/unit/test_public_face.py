import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import ecs_plugins

HEAVY = {
    *("torch", "transformers", "sentence_transformers", "faiss", "sklearn", "scipy", "matplotlib"),
    *("langchain_core", "langchain_classic", "langgraph", "llama_index"),
}
FACES = Path(ecs_plugins.__file__).parent.glob("*/__init__.pyi")
PACKAGES = ["ecs_plugins", *sorted(f"ecs_plugins.{face.parent.name}" for face in FACES)]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_importing_looking_for_models_and_routing_load_nothing_heavy() -> None:
    code = f"""
import sys, {", ".join(PACKAGES)}
from ecs_plugins.memory import *
from ecs_plugins.ranking.embedder import FakeEmbedder, SentenceTransformerEmbedder
from ecs_plugins.lm.bundled import state_of
SentenceTransformerEmbedder(), FakeEmbedder().embed_query("x"), state_of()
from ecs_plugins.frontier import EfficiencyFrontier, ReuseLedger, StrategyPoint, calibrate
points = [StrategyPoint("a", {{}}, 0.5, 0, 9), StrategyPoint("b", {{}}, 0.6, 5, 9)]
EfficiencyFrontier(points).decide(target_f1=0.5, reuse=3).explain()
print([m for m in {HEAVY!r} if m in sys.modules])
"""
    assert run(code) == "[]"


@pytest.mark.parametrize("module", PACKAGES)
def test_every_exported_name_resolves_and_is_listed(module: str) -> None:
    package = importlib.import_module(module)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert dir(package) == sorted(package.__all__)
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert not modules & (set(package.__all__) - {"errors"}), "hidden by a module of its name"


INTEGRATIONS = {
    "ecs_plugins.langchain": ("langchain_core", "langchain", "ECSDocumentCompressor"),
    "ecs_plugins.llama_index": ("llama_index", "llama-index", "ECSPostprocessor"),
    "ecs_plugins.langgraph": ("langgraph", "langchain", "EntropicStore"),
    "ecs_plugins.lm": ("httpx", "serve", "RemoteLM"),
}
SHAPERS = list(INTEGRATIONS)[:2]
KEPT = """
from ecs_plugins import FakeEmbedder
index = {"dims": 8, "embed": FakeEmbedder(8)}
with EntropicStore.from_conn_string(":memory:", index=index) as store:
    store.put(("c", "u"), "k", {"content": "bees"})
    assert store.search((), query="bees")
"""
USED = {package: f"{INTEGRATIONS[package][2]}(model='some/model', top_k=3)" for package in SHAPERS}


@pytest.mark.slow
@pytest.mark.parametrize(("package", "use"), [*USED.items(), ("ecs_plugins.langgraph", KEPT)])
def test_naming_a_class_and_using_it_without_a_model_loads_no_model_library(package, use):
    code = f"""
import sys
from {package} import {INTEGRATIONS[package][2]}
{use}
print([m for m in ("torch", "transformers", "sentence_transformers") if m in sys.modules])
"""
    assert run(code) == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("package", INTEGRATIONS)
def test_a_missing_framework_is_an_error_that_names_the_extra_and_the_others_work(package):
    framework, extra, name = INTEGRATIONS[package]
    others = [(other, INTEGRATIONS[other][2]) for other in SHAPERS if other != package]
    code = f"""
import importlib, importlib.abc, sys
from ecs_plugins.errors import MissingExtraError

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {framework!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
for other, name in {others if package in SHAPERS else []}:
    assert getattr(importlib.import_module(other), name).__name__ == name
import {package}
try:
    {package}.{name}
except MissingExtraError as error:
    print(error.extra, "|", error)
"""
    out = run(code)
    assert out.startswith(f"{extra} |")
    assert f'pip install "ecs-plugins[{extra}]"' in out
    assert f"{package}.{name}" in out
