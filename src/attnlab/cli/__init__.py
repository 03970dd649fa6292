"""The command line: thin commands over the library, one sentence for every error, and exit statuses to rely on.

0 done and every claim passed · 1 done and a claim failed · 2 wrong usage · 3 could not run · 130 interrupted.
"""

from attnlab.cli.commands import main

__all__ = ["main"]
