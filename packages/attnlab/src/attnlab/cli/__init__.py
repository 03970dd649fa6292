"""The command line: thin commands over the library, and one sentence for every error.

Exit status: 0 done and no claim failed · 1 done and a claim failed · 2 wrong usage · 3 could not
run · 130 interrupted · 143 terminated.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main", "program"]

_STOPPED = (130, 143)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; no mistake of a user ends in a traceback."""
    try:
        from attnlab.cli import commands  # inside: Ctrl-C must work while it loads

        return commands.main(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("attnlab: stopped by you.\n")
        return 130


def program() -> NoReturn:
    """Run the command `attnlab`, and end the process with its exit status."""
    status = main()
    if status in _STOPPED:
        # Python needs a second to shut torch down, which a user who pressed Ctrl-C should not wait
        # for; everything is written by now.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(status)
    sys.exit(status)
