"""The commands of ``python -m benchmarks``, and the option that many of them take."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.datasets.hub import data_file

DataFile = Annotated[
    Path,
    typer.Option(
        parser=data_file,
        metavar="FILE",
        help="The published file, or hf://datasets/OWNER/NAME/FILE.",
    ),
]
