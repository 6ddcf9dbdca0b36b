"""``python -m dbull.cli`` is the same as ``dbull``."""

from dbull.cli import main

main()
