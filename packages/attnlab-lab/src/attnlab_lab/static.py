"""The playground as a folder of three files, for any web host, and for opening from disk.

`index.html` holds the engine's script as plain text, of which the page makes its worker: a page
from disk may start no worker from a file of its own.
"""

import html
import re
from importlib import resources
from pathlib import Path

from attnlab.core.store import make_folder, write_text
from attnlab.draw.bundle import bundle
from attnlab.draw.colors import color_css

_STYLES = (
    "attnlab/draw/report/page.css",
    "attnlab/draw/report/sections.css",
    "attnlab_lab/lab.css",
    "attnlab_lab/rooms/anatomy.css",
    "attnlab_lab/rooms/design.css",
)
_SERVED_ROOMS = ("runs", "populations", "sweeps", "models", "programs", "course")
_SERVED_STYLES = (
    "attnlab/draw/view/seeds.css",
    *(f"attnlab_lab/rooms/{room}.css" for room in _SERVED_ROOMS),
)
_SERVED = (
    ("default-src 'none'; ", "default-src 'none'; connect-src 'self'; "),
    ("<title>", '<meta name="attnlab-runs" content="{runs}">\n<title>'),
    (
        "Everything happens in this page: no server, no account, nothing is sent. The same seed "
        "gives the same numbers in every browser.",
        "This page talks to the lab on this computer alone: no account, nothing leaves it.",
    ),
)
"""What the page of a server says instead: it may ask that server, and knows the folder of runs."""


def write_static(folder: Path | str) -> Path:
    """Write `index.html`, `lab.js` and `lab.css` into a folder, created if needed; return it."""
    return _write(Path(folder), "attnlab_lab/static.js", _STYLES, _read("attnlab_lab/page.html"))


def write_served(folder: Path | str, runs: Path | str) -> Path:
    """Write the files for a page that `attnlab_lab.server` serves; return the folder."""
    page = _read("attnlab_lab/page.html")
    for static, served in _SERVED:
        if page.count(static) != 1:
            raise ValueError(f"the page should say {static!r} once")
        page = page.replace(static, served.replace("{runs}", html.escape(str(runs))))
    written = _write(Path(folder), "attnlab_lab/served.js", (*_STYLES, *_SERVED_STYLES), page)
    write_text(written / "codemirror.js", _read("attnlab_lab/codemirror/codemirror.js"))
    return written


def _write(folder: Path, script: str, styles: tuple[str, ...], page: str) -> Path:
    make_folder(folder)
    engine = f'"use strict";\n{_dense(bundle("attnlab_lab/worker.js"))}'
    if "</script" in engine or "<!--" in engine:
        raise ValueError("the engine's script would end the element of the page that holds it")
    write_text(folder / "index.html", page.replace("{{ engine }}", engine))
    whole = _dense(bundle(script))
    write_text(folder / "lab.js", f'"use strict";\n(() => {{\n{whole}}})();\n')
    write_text(folder / "lab.css", _without_comments("\n".join([color_css(), *map(_read, styles)])))
    return folder


def _without_comments(text: str) -> str:
    """Leave out comments that have lines of their own; who reads the sources finds them there."""
    text = re.sub(r"^[ \t]*/\*.*?\*/[ \t]*\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^[ \t]*//.*\n", "", text, flags=re.MULTILINE)


def _dense(script: str) -> str:
    """Leave out comments and indentation, but for the text of a template on several lines."""
    lines, is_text = [], False
    for line in _without_comments(script).splitlines():
        code = line if is_text else re.sub(r"\s+// .*$", "", line.strip())
        if code or is_text:
            lines.append(code)
        is_text ^= line.count("`") % 2 == 1
    return "\n".join([*lines, ""])


def _read(name: str) -> str:
    package, _, path = name.partition("/")
    return (resources.files(package) / path).read_text(encoding="utf-8")
