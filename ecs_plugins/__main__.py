"""``python -m ecs_plugins`` is ``ecs-plugins``."""

from ecs_plugins.cli import main

main()
