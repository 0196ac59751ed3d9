"""Peak memory over the loaded model, every scorer in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.engine.target import CPU, Target
from benchmarks.engine.workload import Setting, model_of, only, request_of
from ecs_plugins.errors import ModelError

_STATUS = Path("/proc/self/status")


def peak_over_model(setting: Setting, scorer: str, candidates: int, target: Target = CPU) -> float:
    """Return the peak MiB of scoring beyond the loaded model.

    Args:
        setting: What to score.
        scorer: Its name.
        candidates: How many of the candidates; a scorer that shares nothing peaks on the first.
        target: Where; on a card, its memory is meant.

    Raises:
        ImportError: The peer is not installed.
        ModelError: The process failed.
    """
    task = json.dumps(
        {
            "setting": asdict(setting),
            "scorer": scorer,
            "candidates": candidates,
            "device": str(target.device),
            "dtype": target.dtype_name,
        }
    )
    done = subprocess.run(
        [sys.executable, "-m", __name__, task], capture_output=True, text=True, check=False
    )
    if "ModuleNotFoundError" in done.stderr:
        raise ImportError(f"{scorer} is not installed")
    if done.returncode:
        raise ModelError(f"measuring the memory of {scorer} failed: {done.stderr[-500:]}")
    return float(done.stdout.split()[-1])


def status_mib(field: str) -> float:
    """A figure of this process in MiB."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ModelError(f"this system does not report {field}")


def _main(task: str) -> float:
    import torch

    from benchmarks.engine import scorers

    torch.set_num_threads(1)
    asked = json.loads(task)
    setting = Setting(**asked["setting"])
    target = Target.of(asked["device"], asked["dtype"])
    model = model_of(setting.model, target=target)
    scorer = scorers.make(asked["scorer"], model)
    request = request_of(setting, 0, int(model.config.vocab_size))
    part = only(request, list(range(min(asked["candidates"], setting.candidates))))
    if target.on_card:
        torch.cuda.reset_peak_memory_stats(target.device)
        held = torch.cuda.memory_allocated(target.device)
        scorer(part)
        return (torch.cuda.max_memory_allocated(target.device) - held) / 2**20
    if not _STATUS.exists():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        scorer(part)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20 - before
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    before = status_mib("VmRSS")
    scorer(part)
    return status_mib("VmHWM") - before


if __name__ == "__main__":
    sys.stdout.write(f"{_main(sys.argv[1])}\n")
