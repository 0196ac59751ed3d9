"""How much memory what is kept between calls may take where nobody has said it.

A share of what is free when something is first kept. On a processor the rest of the program and
other programs want memory too; a card is there for its model.
"""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

_SHARE = 8
_SHARE_OF_A_CARD = 4
_LEAST = 2**26
_MOST = 2**34
"""On a processor: a program that runs for weeks shall not grow without end on a large machine."""

_GROUP = Path("/sys/fs/cgroup")
_GROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Limit and use of a container's memory, in both versions of Linux's control groups."""


def default_cache_bytes(device: torch.device) -> int:
    """The budget for keys and values that are kept on a device."""
    if device.type == "cuda" and torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds for later tensors is free as well.
        spare = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return max(_LEAST, (free + spare) // _SHARE_OF_A_CARD)
    share = free_bytes() // _SHARE
    return min(_MOST, max(_LEAST, share))


def free_bytes(group: Path | None = None) -> int:
    """Memory that this process can still have, within the limit of its container.

    Args:
        group: Where the control group of the process is, if it has one.
    """
    group = group or _GROUP
    available: int = psutil.virtual_memory().available
    for limit_file, use_file in _GROUP_FILES:
        try:
            limit = int((group / limit_file).read_text())
            used = int((group / use_file).read_text())
        except (OSError, ValueError):  # no such file, or "max" for no limit
            continue
        available = min(available, limit - used)
    return max(0, available)
