"""How many cases are tried: a few by default, ``ECS_PLUGINS_FUZZ`` of each by ``make fuzz``."""

import os

from hypothesis import HealthCheck, settings

fuzzing = settings(
    max_examples=int(os.environ.get("ECS_PLUGINS_FUZZ", "25")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
