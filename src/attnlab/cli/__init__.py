"""The command line: thin commands over the library, one sentence for every error, and exit statuses to rely on.

0 done and every claim passed · 1 done and a claim failed · 2 wrong usage · 3 could not run · 130 interrupted.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; nothing a user can cause ends in a traceback."""
    try:
        from attnlab.cli import commands  # inside, so that an interrupt is heard while it loads

        return commands.main(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("attnlab: stopped by you.\n")
        return 130
