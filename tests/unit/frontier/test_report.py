import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from ecs_plugins.errors import InvalidInputError, MissingExtraError
from ecs_plugins.frontier.decision import UnreachableTargetError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.report import colours, map_figure, write_report

from .conftest import hand_points, point, sample_measurements

pytestmark = pytest.mark.slow  # draws figures


@pytest.fixture(scope="module")
def written(tmp_path_factory, measured_frontier):
    folder = tmp_path_factory.mktemp("report")
    return write_report(measured_frontier, folder, reuses=(1, 10, 100))


def test_the_page_is_whole_alone_and_shows_regimes_and_what_was_dropped(written):
    page = written.read_text()
    assert page.count("<svg") == 4
    outside = re.findall(r'(?:src|href)\s*=\s*"(?!#)[^"]*"|@import|url\((?!#)[^)]*\)', page)
    assert outside == []
    ids = re.findall(r'\bid="([^"]+)"', page)
    distinct = set(ids)
    assert len(ids) == len(distinct)
    references = re.findall(r'(?:url\(#|href="#)([^")]+)', page)
    assert distinct.issuperset(references)
    for shown in ("dominated by tfidf(depth=4)", "oracle (upper bound)", "<td>balanced</td>"):
        assert shown in page


def test_the_same_frontier_gives_the_same_page(written, measured_frontier, tmp_path):
    again = write_report(measured_frontier, tmp_path, reuses=(1, 10, 100))
    assert written.read_bytes() == again.read_bytes()


def test_names_from_the_data_cannot_inject_markup(tmp_path):
    evil = "</script><script>alert(1)</script>$\\frac$"
    injected = point(evil, 0.5, 0, 10)
    other = point("b", 0.6, 10, 20)
    frontier = EfficiencyFrontier([injected, other])
    file = write_report(frontier, tmp_path)
    page = file.read_text()
    assert "<script>alert" not in page
    assert "alert(1)" in page
    assert r"$\frac$" in page


def test_the_map_says_what_the_router_would_choose():
    frontier = EfficiencyFrontier(hand_points())
    palette = colours(frontier)
    (axis,) = map_figure(frontier).axes
    covered = 0.0
    for area in axis.patches:
        width = area.get_width()
        height = area.get_height()
        covered += width * height
        left = area.get_x()
        right = left + width
        reuse = (left * right) ** 0.5
        target = area.get_y() + height / 2
        decision = frontier.decide(target_f1=target, reuse=reuse)
        colour = palette[decision.strategy]
        assert area.get_facecolor() == to_rgba(colour)
    low, high = axis.get_ylim()
    assert covered == pytest.approx((high - low) * 999)


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"reuses": []}, InvalidInputError, "give 1,10,100"),
        ({"reuses": [1, float("inf")]}, InvalidInputError, "give 1,10,100"),
        ({"target_f1": 0.99}, UnreachableTargetError, "nearest"),
    ],
)
def test_a_report_that_cannot_be_is_refused_and_writes_nothing(tmp_path, asked, error, message):
    frontier = EfficiencyFrontier(hand_points())
    folder = tmp_path / "r"
    with pytest.raises(error, match=message):
        write_report(frontier, folder, **asked)
    assert not folder.exists()


def test_missing_matplotlib_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="pip install matplotlib"):
        write_report(EfficiencyFrontier(hand_points()), tmp_path)


@pytest.mark.filterwarnings("error")
def test_where_every_f1_is_zero_the_report_shows_the_cheapest(tmp_path):
    measured, _ = sample_measurements(questions=5)
    nothing = np.zeros(measured.shape)
    measured = replace(measured, f1=nothing)
    frontier = EfficiencyFrontier.from_measurements(measured)
    file = write_report(frontier, tmp_path)
    page = file.read_text()
    assert "<td>balanced</td><td>[0.000, 1.000)</td><td>tfidf(depth=4)" in page
    (axis,) = map_figure(frontier).axes
    assert len(axis.patches) == 2
