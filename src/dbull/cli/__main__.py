"""``python -m dbull.cli`` is the same as ``dbull``."""

from . import main

main()
