import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from ecs_plugins.errors import InvalidInputError, MissingExtraError
from ecs_plugins.frontier.envelope import EfficiencyFrontier, UnreachableTargetError
from ecs_plugins.frontier.report import colours, map_figure, write_report

from .conftest import hand_points, point, sample_measurements

pytestmark = pytest.mark.slow  # draws figures


@pytest.fixture(scope="module")
def written(tmp_path_factory, measured_frontier):
    folder = tmp_path_factory.mktemp("report")
    return write_report(measured_frontier, folder, reuses=(1, 10, 100))


def test_a_report_is_one_page_and_four_figures_in_two_formats(written):
    drawn = ("strategies", "frontier", "map", "reuse")
    files = [f"{name}.{kind}" for name in drawn for kind in ("svg", "png")]
    assert [path.name for path in written] == ["frontier.html", *files]
    for path in written:
        head = path.read_bytes()[:8]
        assert head.startswith(b"\x89PNG" if path.suffix == ".png" else b"<")


def test_the_page_needs_nothing_from_elsewhere(written):
    page = written[0].read_text()
    assert page.count("<svg") == 4
    outside = re.findall(r'(?:src|href)\s*=\s*"(?!#)[^"]*"|@import|url\((?!#)[^)]*\)', page)
    assert outside == []


def test_the_figures_of_a_page_do_not_share_ids(written):
    ids = re.findall(r'\bid="([^"]+)"', written[0].read_text())
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', written[0].read_text()))
    assert used <= set(ids)


def test_the_page_shows_intervals_regimes_and_what_was_dropped(written):
    page = written[0].read_text()
    assert "dominated by tfidf(depth=4)" in page
    assert "oracle (upper bound)" in page
    assert "<td>balanced</td>" in page


def test_the_same_frontier_gives_the_same_files(written, measured_frontier, tmp_path):
    again = write_report(measured_frontier, tmp_path, reuses=(1, 10, 100))
    for one, other in zip(written, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_names_from_the_data_cannot_inject_markup(tmp_path):
    evil = "</script><script>alert(1)</script>$\\frac$"
    frontier = EfficiencyFrontier([point(evil, 0.5, 0, 10), point("b", 0.6, 10, 20)])
    page = write_report(frontier, tmp_path)[0].read_text()
    assert "<script>alert" not in page
    assert "alert(1)" in page
    assert r"$\frac$" in page


def test_the_map_says_what_the_router_would_choose():
    frontier = EfficiencyFrontier(hand_points())
    palette = colours(frontier)
    (axis,) = map_figure(frontier).axes
    covered = 0.0
    for area in axis.patches:
        covered += area.get_width() * area.get_height()
        reuse = ((area.get_x() + area.get_width()) * area.get_x()) ** 0.5
        target = area.get_y() + area.get_height() / 2
        chosen = frontier.decide(target_f1=target, reuse=reuse).strategy
        assert area.get_facecolor() == to_rgba(palette[chosen])
    low, high = axis.get_ylim()
    assert covered == pytest.approx((high - low) * 999)


@pytest.mark.parametrize("reuses", [[], [1, float("inf")]])
def test_a_report_without_an_n_to_compare_is_refused(tmp_path, reuses):
    with pytest.raises(InvalidInputError, match="give 1,10,100"):
        write_report(EfficiencyFrontier(hand_points()), tmp_path, reuses=reuses)


def test_a_report_of_an_unreachable_target_writes_nothing(tmp_path):
    with pytest.raises(UnreachableTargetError):
        write_report(EfficiencyFrontier(hand_points()), tmp_path / "r", target_f1=0.99)
    assert not (tmp_path / "r").exists()


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"ecs-plugins\[plots\]"):
        write_report(EfficiencyFrontier(hand_points()), tmp_path)


@pytest.mark.filterwarnings("error")
def test_where_every_f1_is_zero_the_report_shows_the_cheapest(tmp_path):
    measured, _ = sample_measurements(questions=5)
    nothing = np.zeros(measured.shape)
    frontier = EfficiencyFrontier.from_measurements(replace(measured, f1=nothing, em=nothing))
    page = write_report(frontier, tmp_path)[0].read_text()
    assert "<td>balanced</td><td>[0.000, 1.000)</td><td>tfidf(depth=4)" in page
    assert len(map_figure(frontier).axes[0].patches) == 2
