"""Where a run took place: versions, machine, threads, commit, and how much memory it needed."""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dbull.errors import SettingsError
from dbull.store.manifest import package_version

PACKAGES = ("dbull", "numpy", "scipy", "scikit-learn", "torch", "umap-learn", "faiss-cpu")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# What decides numbers: results, pages and tests may differ from the commit.
CODE = (":(top)src", ":(top)experiments/*.py", ":(top)pyproject.toml")


@dataclass(frozen=True)
class Source:
    """The code of this process: the commit of its checkout, and the files that are not as committed."""

    commit: str | None  # None: not in a git checkout of its own
    changed: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """What a record says of it."""
        if self.commit is None:
            return "not in a git checkout: the commit is not known, the version of dbull is all there is"
        if self.changed:
            return f"changed since the commit: {', '.join(self.changed)}"
        return "as committed"


def describe_environment() -> dict[str, Any]:
    """Return what may explain a difference between two runs of the same settings."""
    from threadpoolctl import threadpool_info

    source = source_of(Path(__file__).parent)
    return {
        "command": ["dbull", *sys.argv[1:]],  # where the program lies is nobody's business
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "commit": source.commit,
        "source": source.told,
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


def refuse_changed_source() -> None:
    """Refuse to make results of which nobody could say by which code they were made."""
    source = source_of(Path(__file__).parent)
    if source.changed:
        raise SettingsError(
            f"the code is not that of its commit ({', '.join(source.changed[:5])}): commit it, so that the "
            "result names what made it, or give --allow-dirty, which is recorded"
        )


@cache
def source_of(folder: Path) -> Source:
    """Return the state of the checkout that a folder of code is of, as it was when first asked.

    A long series of runs has loaded its code at the start; what is edited or committed meanwhile is not what
    runs. A package that is installed inside the repository of another project has no commit.
    """
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return Source(None)
    commit = _git(folder, "rev-parse", "HEAD")
    listed = _git(folder, "status", "--porcelain", "--untracked-files=all", "--", *CODE) or ""
    return Source(commit, tuple(line.split(maxsplit=1)[1] for line in listed.splitlines()))


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
