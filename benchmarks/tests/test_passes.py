import json

from benchmarks.commands.passes import TARGETS, measure, watch
from ecs_plugins.lm import FakeLanguageModel


def test_the_command_names_the_files_that_each_operation_passes(bench, tmp_path):
    shown = bench("passes", "--functions", "--out", tmp_path / "passes.json")
    found = json.loads((tmp_path / "passes.json").read_text())
    assert found.keys() == TARGETS.keys()
    for operation, files in found.items():
        assert f"{operation}: {len(files)} files (at most {TARGETS[operation]})" in shown
    assert any(name.endswith(".add") for names in found["add"].values() for name in names)
    assert "shaping/shaper.py" in found["shape"]


def test_only_functions_of_the_package_count():
    model = FakeLanguageModel()
    passed = watch(lambda: json.dumps(model.count_tokens(["a text"])))
    assert "lm/fake.py" in passed.files
    assert not any(name.startswith("..") or "json" in name for name in passed.files)
    assert passed.functions >= 1


def test_an_operation_passes_few_files():
    for operation, passed in measure().items():
        assert len(passed.files) <= TARGETS[operation], operation
