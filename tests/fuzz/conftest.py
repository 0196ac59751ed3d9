"""Number of cases: a few by default, ``ECS_PLUGINS_FUZZ`` of each with ``make fuzz``.

The few are the same in each run: a change is judged by itself. Those of ``make fuzz`` are new.
"""

import os

from hypothesis import HealthCheck, settings

wanted = os.environ.get("ECS_PLUGINS_FUZZ")

fuzzing = settings(
    max_examples=int(wanted or 25),
    derandomize=wanted is None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
