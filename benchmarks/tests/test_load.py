import json

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("place", [(), ("--address", "private")])
def test_load_measures_both_apps_and_bursts_that_are_shed(bench, tmp_path, place):
    out = tmp_path / "load.json"
    run = ("--clients", "3", "--minutes", "0.02", "--pause", "0", "--out", out)
    shown = bench("load", *run, *place)
    (found,) = json.loads(out.read_text())
    assert found["rounds"] >= 3
    assert not any(name.startswith("errors") for name in found)
    for name in ("shape", "recall", "add", "recall beside 16 scorings"):
        p50, p95, p99 = (found[f"{name} p{n} (ms)"] for n in (50, 95, 99))
        assert 0 < p50 <= p95 <= p99
    for kind, error in (("model", "ModelBusyError"), ("memory", "StorageError")):
        assert found[f"{kind} burst of 512, answered"] == 32
        assert found[f"{kind} burst of 512, {error}"] == 480
        assert found[f"{kind} burst, refused afterwards"] == 0
    assert "event-loop lag p99 (ms)" in shown


def test_load_names_the_models_that_it_knows(bench):
    assert "bundled" in bench("load", "--model", "gpt", status=1)


@pytest.mark.slow
def test_a_server_answers_despite_misbehaving_clients(bench, tmp_path):
    out = tmp_path / "load.json"
    bench("server-load", "--clients", "4", "--minutes", "0.05", "--pause", "0.1", "--out", out)
    found = json.loads(out.read_text())
    assert set(found["statuses"]) == {"200"}
    assert set(found["others"]) == {"silent", "endless", "leaving"}
    assert 0 < found["small p50 (ms)"] <= found["small p99 (ms)"]
