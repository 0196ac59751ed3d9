"""Tests of the command that makes every figure."""

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.commands import report
from ecs_plugins.errors import InvalidInputError


@pytest.fixture
def jobs(monkeypatch):
    jobs = (
        report.Job("games", "lapsing", "lapsing --games 1"),
        report.Job("wrong", "lapsing", "lapsing --games x"),
        report.Job("read", "cost", "seconds --data {squad}"),
        report.Job("card", "card", "gpu", needs_card=True),
    )
    monkeypatch.setattr(report, "JOBS", jobs)
    return jobs


def run(*arguments):
    ended = CliRunner().invoke(app, ["report", *arguments])
    if ended.exception and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return ended.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_report_goes_on_where_it_ended_and_shows_each_table(jobs, tmp_path):
    first = run("--out", str(tmp_path))
    assert "1/4 games: there already" not in first
    assert "2/4 wrong: failed" in first
    assert "Usage: python -m benchmarks lapsing" in (tmp_path / "wrong.failed.txt").read_text(
        encoding="utf-8"
    )
    assert "3/4 read: skipped, add --data squad=FILE" in first
    assert "4/4 card: skipped, there is no NVIDIA card" in first
    made = (tmp_path / "games.txt").read_text(encoding="utf-8")
    assert made.startswith("python -m benchmarks lapsing --games 1\n")
    assert made.strip() in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "games: there already" in run("--out", str(tmp_path), "--only", "games")


def test_report_starts_nothing_without_time(jobs, tmp_path):
    assert "no time left" in run("--out", str(tmp_path), "--only", "games", "--minutes", "0")


@pytest.mark.parametrize("wrong", [["--only", "nothing"], ["--data", "squad"]])
def test_report_refuses_wrong_names(jobs, tmp_path, wrong):
    with pytest.raises(InvalidInputError):
        run("--out", str(tmp_path), *wrong)


def test_every_job_names_a_page_and_a_command(request):
    pages = request.config.rootpath / "docs" / "measurements"
    names = {command.name for command in app.registered_commands}
    for job in report.JOBS:
        assert (pages / f"{job.page}.md").is_file(), job.page
        assert job.command.split()[0] in names
