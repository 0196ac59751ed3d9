"""Entry point of ``python -m ecs_plugins``."""

from ecs_plugins.cli import main

main()
