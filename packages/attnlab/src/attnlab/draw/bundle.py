"""One script from readable ES modules, whose imports and exports are checked and then removed.

A name begins with the package, as in "attnlab/draw/view/modules/view.js". An import has the form
`import { one, other } from "./file.js";`, on one line or several; a file of another package is
imported by its name.
"""

import posixpath
import re
from collections import Counter
from importlib import resources

_IMPORT = re.compile(r'^import \{([^}]+)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) (\w+))", re.MULTILINE)
_DECLARED = re.compile(r"^(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)


def bundle(entry: str) -> str:
    """Join a module and everything it imports into one ES module with the entry's exports.

    Raises:
        ValueError: a module is missing, modules import each other in a circle, an imported name is
            not exported, or two modules declare the same name.
    """
    exports: dict[str, list[str]] = {}
    scripts: list[str] = []

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ValueError(f"a circle of imports: {' → '.join([*importers, name])}")
        if name in exports:
            return
        text = _read(name)
        for words, path in _IMPORT.findall(text):
            source = path
            if path.startswith("."):
                source = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            add(source, (*importers, name))
            missing = {word.strip() for word in words.split(",")} - {"", *exports[source]}
            if missing:
                raise ValueError(f"{name} imports {min(missing)}, which {source} does not export")
        exports[name] = _EXPORT.findall(text)
        script = _EXPORT.sub("", _IMPORT.sub("", text))
        if re.search(r"^(?:import|export)\b", script, re.MULTILINE):
            raise ValueError(f"{name} has an import or export of an unknown form")
        scripts.append(script)

    add(entry, ())
    joined = "\n".join(scripts)
    [(name, times)] = Counter(_DECLARED.findall(joined)).most_common(1)
    if times > 1:
        raise ValueError(f"{name} is declared {times} times in the modules of {entry}")
    names = ", ".join(exports[entry])
    if names:
        joined += f"\nexport {{ {names} }};\n"
    return joined


def _read(name: str) -> str:
    package, _, path = name.partition("/")
    file = resources.files(package) / path
    if not file.is_file():
        raise ValueError(f"the module {name} is missing")
    return file.read_text(encoding="utf-8")
