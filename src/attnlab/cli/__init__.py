"""The command line: thin commands over the library, one sentence for every error, and exit statuses to rely on.

0 done and no claim failed · 1 done and a claim failed · 2 wrong usage · 3 could not run · 130 interrupted ·
143 terminated.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main", "program"]

_STOPPED = (130, 143)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; nothing a user can cause ends in a traceback."""
    try:
        from attnlab.cli import commands  # inside, so that an interrupt is heard while it loads

        return commands.main(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("attnlab: stopped by you.\n")
        return 130


def program() -> NoReturn:
    """Be the command `attnlab`: run one command, and end the process with its exit status."""
    status = main()
    if status in _STOPPED:
        # Whoever pressed Ctrl-C wants to be gone; to take torch apart Python needs a second. All is said and written.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(status)
    sys.exit(status)
