"""``python -m examples.demo``."""

import typer

from examples.demo import demo

typer.run(demo)
