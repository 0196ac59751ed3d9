import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # every test starts an interpreter

INTEGRATIONS = {
    "ecs_plugins.langchain": ("langchain_core", "langchain", "ECSDocumentCompressor"),
    "ecs_plugins.llama_index": ("llama_index", "llama-index", "ECSPostprocessor"),
}
BLOCK = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {framework!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("package", INTEGRATIONS)
def test_naming_a_class_and_building_it_loads_no_model_library(package):
    _, _, name = INTEGRATIONS[package]
    code = f"""
import sys
from {package} import {name}
{name}(model="some/model", top_k=3)
print([m for m in ("torch", "transformers", "sentence_transformers") if m in sys.modules])
"""
    assert run(code) == "[]"


STORE = {"ecs_plugins.langgraph": ("langgraph", "agents", "EntropicStore")}


@pytest.mark.parametrize("package", [*INTEGRATIONS, *STORE])
def test_a_missing_framework_is_an_error_that_names_the_extra(package):
    framework, extra, name = {**INTEGRATIONS, **STORE}[package]
    code = f"""{BLOCK.format(framework=framework)}
import {package}
from ecs_plugins.errors import MissingExtraError

try:
    {package}.{name}
except MissingExtraError as error:
    print(error.extra, "|", error)
"""
    out = run(code)
    assert out.startswith(f"{extra} |")
    assert f'pip install "ecs-plugins[{extra}]"' in out
    assert f"{package}.{name}" in out


@pytest.mark.parametrize("package", INTEGRATIONS)
def test_one_integration_works_without_the_other_framework(package):
    (other,) = (framework for p, (framework, _, _) in INTEGRATIONS.items() if p != package)
    _, _, name = INTEGRATIONS[package]
    code = f"{BLOCK.format(framework=other)}\nimport {package}\nprint({package}.{name}.__name__)"
    assert run(code) == name
