import json

from typer.testing import CliRunner

from ecs_plugins.cli import app
from ecs_plugins.frontier.artefact import save
from ecs_plugins.frontier.simulate import REUSE_KINDS


def test_bench_frontier_writes_ratios_of_what_it_measured(tmp_path):
    arguments = ["bench", "frontier", "--out", str(tmp_path), "--decisions", "100"]
    done = CliRunner().invoke(app, [*arguments, "--counts", "100", "--writers", "2"])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "frontier-bench.json").read_text())
    decision, ledger = result["decision"], result["ledger"]
    assert decision["cheapest_over_dict"] == decision["cheapest_us"] / decision["dict_lookup_us"]
    assert ledger["record_over_upsert"] == ledger["record_us"] / ledger["bare_upsert_us"]
    assert ledger["writers_p99_us"] >= ledger["writers_p50_us"] > 0


def test_bench_deployment_compares_policies_on_every_kind_of_reuse(tmp_path, measured_frontier):
    artefact = save(measured_frontier, tmp_path / "f.json")
    prices = tmp_path / "prices.json"
    prices.write_text('{"unit": "USD", "answer": {"input": 1, "output": 4}}')
    arguments = ["bench", "deployment", str(artefact), "--target-f1", "0.6", "--contexts", "50"]
    arguments += ["--prices", str(prices), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "deployment.json").read_text())
    assert record["unit"] == "USD"
    assert (tmp_path / "deployment.png").read_bytes().startswith(b"\x89PNG")
    assert "bursty" in (tmp_path / "deployment.svg").read_text()
    for kind in REUSE_KINDS:
        assert record[kind][0]["name"] == "offline optimum"
        assert any(row["name"].startswith("always memory") for row in record[kind])
