"""Whose an unfinished generation is, and whether that process is gone.

A process is known by the boot of its machine, its process namespace, its number and its start. The name of a
machine would not do, since several may have the same on a shared disk; nor would a clock, since clocks are
set. Of a process of another boot or namespace nothing can be known here, however old its folder is.
"""

import os
import re
import secrets
from functools import cache
from pathlib import Path

_NAME = re.compile(r"(?P<place>[0-9a-f-]{36}\.\d+)\.(?P<pid>\d+)\.(?P<start>\d+)\.[0-9a-f]{16}\Z", re.ASCII)
_NOBODY = re.compile(r"gone-[0-9a-f]{16}\Z", re.ASCII)


def owner_name() -> str:
    """Return a new name for what this process writes."""
    place = _place()
    who = "unknown" if place is None else f"{place}.{os.getpid()}.{_start(os.getpid())}"
    return f"{who}.{secrets.token_hex(8)}"


def is_gone(name: str) -> bool | None:
    """Tell whether the owner of a name is gone; None where that cannot be known."""
    if _NOBODY.match(name):
        return True
    match = _NAME.match(name)
    if match is None or match["place"] != _place():
        return None
    pid = int(match["pid"])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    start = _start(pid)  # None also where the system hides processes of other users
    return start is not None and start != match["start"]


def _start(pid: int) -> str | None:
    """Return when a process started, in ticks since the boot; its number may have had another owner."""
    try:
        # The name of the program, in brackets, may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


@cache
def _place_of(pid: int) -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
        # A /proc of another namespace would tell of other processes.
        same = os.readlink("/proc/self") == str(pid)
    except (OSError, AttributeError):
        return None
    return f"{boot}.{namespace}" if same and _start(pid) is not None else None


def _place() -> str | None:
    """Name what process numbers belong to; None where the system does not tell."""
    return _place_of(os.getpid()) if os.name == "posix" else None
