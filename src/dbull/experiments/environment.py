"""Where a run took place: versions, machine, threads, commit, and how much memory it needed."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from dbull.store.manifest import package_version

PACKAGES = ("dbull", "numpy", "scipy", "scikit-learn", "torch", "umap-learn")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def describe_environment() -> dict[str, Any]:
    """Return what may explain a difference between two runs of the same settings."""
    from threadpoolctl import threadpool_info

    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "commit": _commit(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "thread_variables": {name: os.environ.get(name) for name in THREAD_VARIABLES},
        "thread_pools": [
            {key: pool.get(key) for key in ("user_api", "internal_api", "version", "num_threads")}
            for pool in threadpool_info()
        ],
    }


class PeakMemory:
    """Highest resident memory of this process since this object was made, in bytes.

    Where the system cannot restart the count (anything but Linux), it is the peak since the process began,
    and ``scope`` says so.
    """

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # restarts the kernel's high-water mark
            self.scope = "run"
        except OSError:
            self.scope = "process"

    def bytes(self) -> int | None:
        """Return the peak so far, None where the system does not tell."""
        if self.scope == "run":
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        try:
            import resource
        except ImportError:
            return None
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _commit() -> str | None:
    """Return the commit of a source checkout, "+changes" added when it has been edited.

    None for an installed package, even if it lies inside the repository of another project.
    """
    here = Path(__file__)
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    return _git(here.parent, "describe", "--always", "--abbrev=40", "--dirty=+changes", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
