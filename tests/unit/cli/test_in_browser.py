"""Pages of the command line in Chromium, where there is one: width and colours."""

import re
import shutil
import subprocess
from html import escape

import pytest
from starlette.testclient import TestClient

from ecs_plugins import (
    ContextShaper,
    EntropicMemory,
    FakeEmbedder,
    FakeLanguageModel,
    ShapingConfig,
)
from ecs_plugins.cli.play import Played, play_app

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MEASURE = """
const page = this.contentDocument, style = page.defaultView.getComputedStyle(page.body);
document.title = page.documentElement.scrollWidth + ' ' + style.backgroundColor;
"""
SCHEMES = {"dark": 0, "light": 1}
BACKGROUND = {"dark": "rgb(21, 24, 28)", "light": "rgb(255, 255, 255)"}
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
    asked = {"question": f"{LONG}?", "passages": f"{LONG}.\n\nIt rained.", "answer": "It rained."}
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder()) as memory:
        memory.add(LONG, namespace=("user",))
        memory.sleep(("user",))
        played = Played(lambda: shaper, memory)
        client = TestClient(play_app(played), base_url="http://localhost")
        yield {
            "passages": client.post("/", data=asked).text,
            "memory": client.get("/memory", params={"question": LONG}).text,
        }


def measure(page: str, width: int, scheme: str, tmp_path) -> tuple[int, str]:
    """Return the width that a page takes in a frame, in pixels, and its background."""
    file = tmp_path / "page.html"
    frame = f'<iframe width="{width}" srcdoc="{escape(page)}" onload="{escape(MEASURE)}"></iframe>'
    file.write_text(f"<meta charset='utf-8'>{frame}", encoding="utf-8")
    colours = f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"
    command = [CHROMIUM, *ALWAYS, colours, "--dump-dom", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    taken, background = re.search(r"<title>(\d+) (.*)</title>", shown).groups()
    return int(taken), background


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_their_screen_in_light_and_dark(pages, tmp_path, width, scheme) -> None:
    for name, page in pages.items():
        taken, background = measure(page, width, scheme, tmp_path)
        assert taken <= width, name
        assert background == BACKGROUND[scheme], name
