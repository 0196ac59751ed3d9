import json
import math

import pytest
import torch

from benchmarks.engine import (
    card,
    card_report,
    floor,
    measure,
    report,
    scorers,
    serving,
    target,
    workload,
)
from benchmarks.engine.beside_encoder import beside_encoder
from benchmarks.engine.floor import useful_flops
from benchmarks.engine.workload import Setting, only, request_of
from ecs_plugins.errors import InvalidInputError

TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(workload.SHAPES, "llama38", TINY)
    monkeypatch.setitem(workload.SHAPES, "tiny", TINY)
    monkeypatch.setattr(workload, "VOCABULARY", 512)
    # A product of full size takes seconds in bfloat16 on a processor that cannot multiply in it.
    monkeypatch.setattr(floor, "_CPU_SIZES", (64, 64, 64))


SETTING = Setting("tiny", 50, 6, (4, 20), question=6, answer=3, questions=2)


def test_a_request_has_the_sizes_of_its_setting_and_depends_on_its_seed() -> None:
    request = request_of(SETTING, 1, 512)
    assert len(request.prefix) == 50
    assert sorted(map(len, request.candidates))[::5] == [4, 20]
    assert [c.spans for c in request.continuations] == [((6, 9),)] * 2
    assert request == request_of(SETTING, 1, 512) != request_of(SETTING, 2, 512)


@pytest.mark.parametrize("name", [scorers.NAIVE, scorers.ROWS, scorers.PADDED])
def test_every_scorer_says_the_same(tiny, name) -> None:
    model = workload.model_of("tiny")
    request = request_of(SETTING, 0, 512)
    wanted = scorers.make(scorers.OURS, model)(request)
    assert len(wanted) == 12
    assert scorers.make(name, model)(request) == pytest.approx(wanted, abs=1e-4)
    part = scorers.make(name, model)(only(request, [2]))
    assert part == pytest.approx(wanted[4:6], abs=1e-4)


def test_a_ratio_is_the_geometric_mean_with_its_interval() -> None:
    found = measure.ratio_of([1.0, 2.0, 4.0], [2.0, 4.0, 8.0])
    assert (found.ratio, found.low, found.high) == pytest.approx((2, 2, 2))
    wide = measure.ratio_of([1.0, 1.0], [1.0, 4.0])
    assert wide.ratio == pytest.approx(2)
    assert wide.low == pytest.approx(2 * math.exp(-12.71 * math.log(4) / 2), rel=5e-3)


def test_a_scorer_that_disagrees_is_not_timed(tiny, monkeypatch) -> None:
    honest = scorers.make

    def make(name, model):
        scorer = honest(name, model)
        return (lambda r: [x + 0.01 for x in scorer(r)]) if name == scorers.NAIVE else scorer

    monkeypatch.setattr(measure.scorers, "make", make)
    found = measure.compare(SETTING, [scorers.NAIVE, scorers.ROWS], repeats=2, log=lambda _: None)
    assert "disagrees by 0.01" in found["left_out"][scorers.NAIVE]
    assert set(found["seconds_per_candidate"]) == {scorers.ROWS, scorers.OURS}


def test_the_floor_counts_every_token_of_the_plan_once(tiny) -> None:
    model = workload.model_of("tiny")
    one = Setting("tiny", 1, 1, (10, 10), question=5, answer=1)
    tokens, heads, width, layers = 16, 4, 8, 2
    qkv, rest = 32 * 32 + 2 * 32 * 16, 32 * 32 + 3 * 32 * 48
    linear = tokens * (2 * qkv + rest) + rest
    seen = tokens * (tokens + 1) / 2
    wanted = 2 * (linear + 2 * seen * heads * width * layers + 32 * 512)
    assert useful_flops(model, request_of(one, 0, 512)) == wanted


def test_the_command_writes_results_tables_and_adds_to_them(bench, tiny, tmp_path) -> None:
    threads = torch.get_num_threads()
    common = ["engine", "--out", tmp_path, "--quick", "--repeats", "2"]
    bench(*common, "--part", "compare", "--setting", "1", "--scorer", "naive")
    bench(*common, "--part", "callers")
    assert torch.get_num_threads() == threads
    result = json.loads((tmp_path / "engine-bench.json").read_text())
    assert set(result) == {"machine", "compare", "callers"}
    (compared,) = result["compare"].values()
    assert compared["difference"]["naive"] < 1e-3
    assert len(compared["seconds_per_candidate"]["ours"]) == 2
    tables = (tmp_path / "engine-bench.md").read_text()
    assert "Beside the usual ways" in tables
    assert "Callers at once" in tables


def test_a_card_that_is_not_there_is_refused_before_anything_is_written(bench, tmp_path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    out = tmp_path / "x"
    bench("engine", "--out", out, "--device", "cuda", status=1)
    assert not out.exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA card")
@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_the_parts_run_on_a_card(bench, tiny, tmp_path, dtype) -> None:
    common = ["engine", "--out", tmp_path, "--quick", "--repeats", "2"]
    common += ["--device", "cuda:0", "--dtype", dtype, "--model", "llama38"]
    parts = ("compare", "callers")
    for part in parts:
        bench(*common, "--part", part, "--scorer", "naive")
    result = json.loads((tmp_path / "engine-bench.json").read_text())
    assert set(result) == {"machine", *parts}
    (compared,) = result["compare"].values()
    assert not compared["left_out"]


def test_callers_are_measured_on_the_handle(bench, tiny, tmp_path) -> None:
    common = ["engine", "--out", tmp_path, "--quick", "--repeats", "2"]
    bench(*common, "--part", "callers")
    result = json.loads((tmp_path / "engine-bench.json").read_text())
    assert [row["callers"] for row in result["callers"]["llama38"]] == [1, 2]
    assert all(row["error"] < 1e-4 for row in result["callers"]["llama38"])


def test_a_soak_loses_no_call_and_stays_in_its_budget(bench, tmp_path) -> None:
    counts = {"questions": 40, "pools": 6, "clients": 8, "messages": 60, "threads": 4}
    options = [str(each) for name, count in counts.items() for each in (f"--{name}", count)]
    bench("soak", *options, "--out", tmp_path / "soak.json")
    found = json.loads((tmp_path / "soak.json").read_text())
    for part, calls in (("engine", 40), ("memory", 60)):
        assert found[part]["calls"] == calls
        assert found[part]["lost"] == 0
        assert 0 < found[part]["median_s"] <= found[part]["p99_s"]
    assert 0 < found["engine"]["most_kept"] <= found["engine"]["budget"]


def test_a_question_stands_beside_a_cross_encoder() -> None:
    model = serving.handle_of("small")
    found = beside_encoder(repeats=2, quick=True, model=model, log=lambda _: None)
    assert all(len(seconds) == 2 for seconds in found["seconds"].values())
    table = report.markdown({"cross-encoder": {"float32": found}})
    for asked in ("first question", "later question", "half of the passages scored"):
        assert f"{asked}, float32" in table


def test_unknown_parts_settings_and_models_are_refused(bench, tmp_path) -> None:
    for options in (["--part", "nonsense"], ["--setting", "9"]):
        bench("engine", "--out", tmp_path / "x", *options, status=1)
    assert not (tmp_path / "x").exists()
    with pytest.raises(InvalidInputError, match="choose from bundled"):
        workload.model_of("nonsense")


def test_the_check_of_a_card_runs_on_a_processor(tiny, tmp_path) -> None:
    result = card.check_card(target.CPU, card_report.QUICK, lambda _: None)
    assert result["failed"] == []
    names = " ".join(result["figures"])
    for part in ("Llama", "ALiBi", "first question", "later question", "halved", "makes room"):
        assert part in names
    assert "| Llama, float32 | cascade" in card.table(result)
