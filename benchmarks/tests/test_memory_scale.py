import json

import pytest

from benchmarks.memory_scale import growth
from benchmarks.memory_scale.server import measure_server


@pytest.fixture(scope="module")
def result():
    return growth.measure(
        growth.latent_vectors(600, 48),
        growth.latent_vectors(20, 48, seed=1),
        source="latent",
    )


def test_the_benchmark_measures_growth(result):
    figures = result.figures
    assert figures["recall_at_3"] > 0.9
    assert figures["recall_at_3_half_deleted"] > 0.9
    assert figures["tombstones"] == pytest.approx(250, abs=60)
    assert figures["raw_hnsw_recall_at_3"] > 0.9
    for kind in ("batch", "single", "merging_batch", "merging_single"):
        assert figures[f"add_over_bare_{kind}"] > 0
    for name in ("adds_per_s_single", "bare_inserts_per_s_single", "recall_p50_ms", "file_bytes"):
        assert figures[name] > 0


def test_the_table_has_a_row_per_figure(result):
    lines = growth.table([result]).splitlines()
    assert lines[0] == "| figure | 600 latent |"
    assert len(lines) == 2 + len(result.figures)


def test_the_command_writes_its_results(bench, tmp_path, monkeypatch, result):
    monkeypatch.setattr(growth, "measure", lambda *_, **__: result)
    bench("memory-scale", "--size", "600", "--out", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "memory_scale.json").read_text())
    assert written["results"][0]["figures"] == result.figures
    assert (tmp_path / "out" / "memory_scale.md").read_text() == growth.table([result])


@pytest.mark.slow
def test_a_server_is_measured_beside_a_file(postgres):
    figures = measure_server(500, postgres)
    assert figures["same_at_3"] > 0.95
    for name in ("appended_over_bare", "merged_over_bare_cpu", "server_over_file_p50_ms"):
        assert figures[name] > 0
    assert figures["server_recall_p50_cpu_ms"] <= figures["server_recall_p99_cpu_ms"]
