"""Pages of the command line in Chromium, where there is one: nothing sticks out of a phone."""

import re
import shutil
import subprocess
from html import escape

import pytest
from starlette.testclient import TestClient

from ecs_plugins import (
    ContextShaper,
    EfficiencyFrontier,
    EntropicMemory,
    FakeEmbedder,
    FakeLanguageModel,
    ShapingConfig,
    StrategyPoint,
)
from ecs_plugins.cli.play import Played, play_app

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PHONE = 360
MEASURE = "document.title = this.contentDocument.documentElement.scrollWidth"
ALWAYS = ("--headless", "--no-sandbox", "--disable-gpu")
LONG = "supercalifragilistic" * 6

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


@pytest.fixture
def pages():
    """Return the pages to play with, by query."""
    shaper = ContextShaper(FakeLanguageModel(), ShapingConfig(ranker="bm25"))
    notes = StrategyPoint("memory_compression+ecs", {"ratio": 0.3}, f1=0.8, stage1=9, stage2=9)
    full = StrategyPoint("full_context", {}, f1=0.9, stage1=0, stage2=99)
    asked = {"question": f"{LONG}?", "passages": f"{LONG}.\n\nIt rained.", "answer": "It rained."}
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder()) as memory:
        memory.add(LONG, namespace=("user",))
        memory.sleep(("user",))
        played = Played(lambda: shaper, memory, EfficiencyFrontier([full, notes]))
        client = TestClient(play_app(played), base_url="http://localhost")
        yield {
            "passages": client.post("/", data=asked).text,
            "memory": client.get("/memory", params={"question": LONG}).text,
            "frontier": client.get("/frontier").text,
        }


def width(page: str, tmp_path) -> int:
    """Return the width of a page in pixels, in a frame as wide as a phone."""
    file = tmp_path / "page.html"
    frame = f'<iframe width="{PHONE}" srcdoc="{escape(page)}" onload="{MEASURE}"></iframe>'
    file.write_text(f"<meta charset='utf-8'>{frame}", encoding="utf-8")
    command = [CHROMIUM, *ALWAYS, "--dump-dom", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return int(re.search(r"<title>(\d+)</title>", shown)[1])


def test_nothing_sticks_out_of_a_phone(pages, tmp_path) -> None:
    widths = {name: width(page, tmp_path) for name, page in pages.items()}
    assert max(widths.values()) <= PHONE, widths
