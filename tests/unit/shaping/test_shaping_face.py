import subprocess
import sys

import pytest

import ecs_plugins.ranking
import ecs_plugins.shaping

HEAVY = ("torch", "transformers", "sklearn", "scipy", "bm25s", "sentence_transformers", "rich")


@pytest.mark.parametrize("package", [ecs_plugins.ranking, ecs_plugins.shaping])
def test_every_exported_name_resolves(package):
    assert dir(package) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_a_shaper_can_be_made_before_anything_heavy_is_loaded():
    code = (
        "import sys; from ecs_plugins.lm import FakeLanguageModel;"
        "from ecs_plugins.shaping import ContextShaper, ShapingConfig;"
        "ContextShaper(FakeLanguageModel(), ShapingConfig.paper());"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
