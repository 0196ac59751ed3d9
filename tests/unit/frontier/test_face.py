import subprocess
import sys

import pytest


@pytest.mark.slow
def test_deciding_loads_neither_torch_nor_sklearn_nor_matplotlib():
    code = (
        "import sys, ecs_plugins.frontier as f\n"
        "p = [f.StrategyPoint('a', {}, .5, 0, 9), f.StrategyPoint('b', {}, .6, 5, 9)]\n"
        "f.EfficiencyFrontier(p).decide(target_f1=.5, reuse=3).explain()\n"
        "f.calibrate, f.ReuseLedger, f.read_questions\n"
        "heavy = {'torch', 'sklearn', 'matplotlib', 'scipy', 'transformers', 'langchain_core',"
        " 'llama_index'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
