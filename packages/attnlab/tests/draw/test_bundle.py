"""Scripts of pages: readable modules become one, and a fault in them is refused."""

import re
from pathlib import Path

import pytest

from attnlab.draw import bundle as bundling
from attnlab.draw.bundle import bundle

FOLDER = Path(bundling.__file__).parent
VIEW = [f"view/modules/{name}.js" for name in ("page", "report", "view", "widget")]
ENTRIES = ["report/page.js", "report/gallery.js", *VIEW]
EXPORTS = {"view/modules/view.js": ["mount"], "view/modules/widget.js": ["widget"]}
MODULES = {
    "a.js": 'import { two } from "./b.js";\nimport {\n  three,\n} from "./c/c.js";\n'
    "\ntwo(three);\n",
    "b.js": 'import { three } from "./c/c.js";\n\nexport function two() {}\nconst own = three;\n',
    "c/c.js": "export const three = 3;\nexport async function four() {}\n",
}


def comments(name):
    """The first line of a module, which no other has."""
    return (FOLDER / name).read_text().splitlines()[0]


def test_every_module_is_in_a_bundle_once_and_nothing_is_imported():
    modules = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.js")}
    found = set()
    for entry in ENTRIES:
        script = bundle(f"attnlab/draw/{entry}")
        names = {name for name in modules if comments(name) in script}
        assert {script.count(comments(name)) for name in names} == {1}
        found |= names
        assert not re.search(r"^import\b|\bimport\(", script, re.MULTILINE)
        exports = re.findall(r"^export\b.*", script, re.MULTILINE)
        assert exports == [f"export {{ {name} }};" for name in EXPORTS.get(entry, [])]
    assert found == modules


def test_modules_import_what_they_use_and_use_what_they_import():
    texts = {path: path.read_text() for path in FOLDER.rglob("*.js")}
    declared = r"^export (?:async )?(?:function|const|let|class) (\w+)"
    exported = {name for text in texts.values() for name in re.findall(declared, text, re.M)}
    for path, text in texts.items():
        code = re.sub(r"^ *//.*", "", text, flags=re.M)
        words = re.findall(r"^import \{([^}]+)\}", code, re.M)
        imported = {word.strip() for each in words for word in each.split(",")} - {""}
        for name in imported:
            assert len(re.findall(rf"\b{name}\b", code)) > 1, f"{path.name} does not use {name}"
        called = set(re.findall(r'(?<![.\w"])(\w+)\(', code))
        for name in called & exported - imported:
            is_own = re.search(rf"(?:function|const|let) {name}\b|\b{name} =", code)
            assert is_own, f"{path.name} does not import {name}"


def test_one_module_draws_the_cells_of_attention_maps():
    drawing = [path.name for path in FOLDER.rglob("*.js") if "putImageData" in path.read_text()]
    assert drawing == ["paint.js"]


@pytest.fixture
def modules(monkeypatch):
    made = dict(MODULES)
    monkeypatch.setattr(bundling, "_read", made.__getitem__)
    return made


def test_modules_are_joined_without_their_imports_and_exports(modules):
    assert bundle("a.js") == (
        "const three = 3;\nasync function four() {}\n\n"
        "\nfunction two() {}\nconst own = three;\n\n"
        "\ntwo(three);\n"
    )
    assert bundle("b.js").endswith("\nexport { two };\n")


@pytest.mark.parametrize(
    ("name", "before", "after", "words"),
    [
        ("c/c.js", "export const", 'import { two } from "../b.js";\nexport const', "a circle of"),
        ("b.js", "export function", "function", "a.js imports two, which b.js does not export"),
        ("b.js", "const own", "const four", "four is declared 2 times"),
        ("a.js", "import { two }", "import * as two", "an import or export of an unknown form"),
        ("b.js", "export function", "export default function", "of an unknown form"),
    ],
)
def test_a_fault_in_a_module_is_refused(modules, name, before, after, words):
    assert before in modules[name]
    modules[name] = modules[name].replace(before, after)
    with pytest.raises(ValueError, match=words):
        bundle("a.js")


def test_a_missing_module_is_refused():
    with pytest.raises(ValueError, match=r"the module attnlab/draw/report/nothing\.js is missing"):
        bundle("attnlab/draw/report/nothing.js")
