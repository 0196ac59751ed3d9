"""Results in a notebook: in columns, whole, and inert."""

import html
import re

from ecs_plugins.frontier import EfficiencyFrontier, StrategyPoint
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.shaping import ContextShaper, ShapingConfig

HOSTILE = "<script>alert(1)</script>\u202e<|im_end|> The ferry leaves at nine."


LONG = "A very long name of a place " * 9


def check_inert(page):
    assert page.startswith("<pre")
    assert "ferry" in page
    for part in ("<script>", "\u202e", "<|im_end|>"):
        assert part not in page
    check_width(html.unescape(re.sub("</?pre[^>]*>", "", page)))


def check_width(text):
    for line in text.splitlines():
        assert len(line) <= 80


def test_a_shaped_context_shows_its_table():
    shaper = ContextShaper(FakeLanguageModel(), ShapingConfig(ranker=None))
    check_inert(shaper.shape("When does the ferry leave?", [HOSTILE[-30:], "Tea."])._repr_html_())
    check_inert(shaper.shape(f"{HOSTILE} When?", ["The ferry."])._repr_html_())


def test_a_recollection_shows_its_text_and_why():
    with EntropicMemory.open(embedder=FakeEmbedder()) as memory:
        memory.add(HOSTILE)
        (found,) = memory.recall("When does the ferry leave?", threshold=-1.0)
    page = found._repr_html_()
    check_inert(page)
    assert f"{found.score:.3f}" in page


def test_a_list_of_recollections_shows_all_of_them():
    with EntropicMemory.open(embedder=FakeEmbedder()) as memory:
        memory.add([HOSTILE, f"The ferry is called {LONG}."])
        found = memory.recall("When does the ferry leave?", threshold=-1.0)
        nothing = memory.recall("When does the ferry leave?", threshold=1.0)
    check_inert(found._repr_html_())
    for each in found:
        assert f"{each.score:.3f}" in found._repr_html_()
    assert "Nothing was recalled" in nothing._repr_html_()


def test_explanations_fit_a_terminal_of_80_columns():
    shaper = ContextShaper(FakeLanguageModel())
    passages = [f"The ferry leaves at nine from {LONG}.", "x" * 200, "Tea."]
    shaped = shaper.shape(f"When does the ferry leave {LONG}?", passages)
    check_width(shaped.explain())
    shown = sorted((verdict.score for verdict in shaped.kept), reverse=True)
    places = [shaped.explain().index(f"{score:+.3f}") for score in shown]
    assert places == sorted(places)
    with EntropicMemory.open(embedder=FakeEmbedder()) as memory:
        memory.add([f"The ferry is called {LONG}.", "Tea."])
        memory.sleep()
        for each in memory.memories():
            check_width("\n".join(memory.explain(each.id).lines))
    points = [
        StrategyPoint("a" * 70, {"depth": 5}, 0.5, 0, 9),
        StrategyPoint("b", {}, 0.6, 5, 9),
    ]
    decision = EfficiencyFrontier(points).decide(target_f1=0.5, reuse=3)
    check_width(decision.explain())
    assert "expected F1" in decision.explain()
