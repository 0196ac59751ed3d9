import json

import pytest


@pytest.mark.slow
def test_load_measures_both_apps_and_a_burst_that_is_shed(bench, tmp_path):
    out = tmp_path / "load.json"
    shown = bench("load", "--clients", "3", "--minutes", "0.05", "--pause", "0", "--out", out)
    (found,) = json.loads(out.read_text())
    assert found["rounds"] >= 3
    assert not any(name.startswith("errors") for name in found)
    for name in ("shape", "recall", "add", "recall beside 16 scorings"):
        p50, p95, p99 = (found[f"{name} p{n} (ms)"] for n in (50, 95, 99))
        assert 0 < p50 <= p95 <= p99
    assert found["burst of 512, answered"] == 32
    assert found["burst of 512, ModelBusyError"] == 480
    assert found["refused afterwards"] == 0
    assert "event-loop lag p99 (ms)" in shown


def test_load_names_the_models_that_it_knows(bench):
    assert "bundled" in bench("load", "--model", "gpt", status=1)
