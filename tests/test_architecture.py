"""The house itself: packages, floors, circles, a light front door, and a map of it that is true."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import attnlab

pytestmark = pytest.mark.xdist_group("architecture")  # one worker parses all files, once
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packages" / "attnlab" / "src" / "attnlab"
COURSE = ROOT / "packages" / "attnlab-course" / "src" / "attnlab_course"
LAB = ROOT / "packages" / "attnlab-lab" / "src" / "attnlab_lab"

FLOORS = {
    room: floor
    for floor, rooms in enumerate(
        (
            "configs core display errors files memory native progress seeds shapes sites",
            "parts simd tasks",
            "models pretrained",
            "design look programs train",
            "draw edits",
            "experiments plot truth",
            "cli",
            "__main__ course",
        )
    )
    for room in rooms.split()
}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)]


def called(node: ast.Call) -> str:
    """Return the name of what is called, with that of a module or a dot before it."""
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        return f"{owner}.{node.func.attr}"
    return getattr(node.func, "id", "")


def imports_of(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the rooms of attnlab that a file imports, also inside functions."""
    found = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            if node.level:
                found.append("a relative import")
            elif node.module == "attnlab":
                found += [alias.name for alias in node.names if alias.name != "__version__"]
            elif node.module and node.module.startswith("attnlab."):
                found.append(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                room = alias.name.split(".")
                found += [room[1] if room[1:] else "all of attnlab"] if room[0] == "attnlab" else []
        elif isinstance(node, ast.Call) and called(node).endswith(("import_module", "__import__")):
            found.append("an import by name")
    return found


def violations(room: str, imports: list[str]) -> list[str]:
    """Return the imports that do not go down: upward, or sideways to another room of the same
    floor.

    On floor 0 files may use one another (a circle would show as an import error).
    """
    floor = FLOORS[room]
    unknown = max(FLOORS.values()) + 1  # what is no room at all may be imported by nobody
    return [
        other
        for other in imports
        if other != room
        and not (FLOORS.get(other, unknown) < floor or (floor == 0 == FLOORS.get(other)))
    ]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]
ALL_SOURCES = [
    *SOURCES,
    *(path for package in (COURSE, LAB) for path in sorted(package.rglob("*.py"))),
]


def package_imports(package: Path) -> set[str]:
    """Return the modules of attnlab's packages that one of them imports."""
    nodes = [node for path in package.rglob("*.py") for node in nodes_of(path)]
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    modules |= {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    return {module for module in modules if module.startswith("attnlab")}


def test_packages_import_only_those_below_them():
    above = {name for name in package_imports(PACKAGE) if not re.match(r"attnlab\b(?!_)", name)}
    assert above == {"attnlab_course"}  # attnlab.course, where it is installed
    assert not [name for name in package_imports(COURSE) if name.startswith("attnlab_lab")]


def test_the_course_uses_few_modules_of_attnlab():
    used = {name for name in package_imports(COURSE) if not name.startswith("attnlab_course")}
    modules = (
        "cli.failures cli.options cli.progress cli.terminal core.store design.submission "
        "display draw.attention draw.colors draw.pictures.charts draw.pictures.look "
        "draw.pictures.maps draw.sections errors models.single_head tasks.vectors"
    )
    assert used == {"attnlab", *(f"attnlab.{module}" for module in modules.split())}


def test_imports_only_go_down():
    for path in SOURCES:
        wrong = violations(room_of(path), imports_of(nodes_of(path)))
        if path == PACKAGE / "experiments" / "registry.py":
            wrong.remove("an import by name")  # experiments are loaded when they are asked for
        if path == PACKAGE / "course.py":
            wrong.remove("an import by name")  # modules of attnlab-course get a second name
        assert not wrong, f"{path} on floor {FLOORS[room_of(path)]} imports {wrong}"


@pytest.mark.parametrize(
    ("room", "code", "wrong"),
    [
        ("parts", "from attnlab.models import Decoder", ["models"]),
        ("parts", "def f():\n    from attnlab.tasks.sequences import x", ["tasks"]),
        ("look", "import attnlab.train.loop", ["train"]),
        ("models", "from attnlab.parts import attend\nfrom attnlab import seeds", []),
        ("parts", "from ..models import Decoder", ["a relative import"]),
        ("parts", "from .. import models", ["a relative import"]),
        ("parts", "import attnlab\nattnlab.Decoder", ["all of attnlab"]),
        ("parts", "from attnlab import Decoder", ["Decoder"]),
        (
            "parts",
            "import importlib\nimportlib.import_module('attnlab.models')",
            ["an import by name"],
        ),
        ("parts", "__import__('attnlab.models')", ["an import by name"]),
    ],
)
def test_the_floor_check_catches_an_upward_and_a_sideways_import(room, code, wrong):
    assert violations(room, imports_of(ast.walk(ast.parse(code)))) == wrong


def module_graph() -> dict[str, set[str]]:
    """Return which module of the package imports which, also inside functions and for types."""
    graph = {}
    for path in ALL_SOURCES:
        name = ".".join(path.relative_to(source_of(path)).with_suffix("").parts)
        graph[name.removesuffix(".__init__")] = {
            # `from package import file` is an import of the file, not of all the package.
            f"{node.module}.{alias.name}" if is_file(f"{node.module}.{alias.name}") else node.module
            for node in nodes_of(path)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
    return graph


def source_of(path: Path) -> Path:
    """Return the folder src/ that holds a file."""
    return next(folder for folder in path.parents if folder.name == "src")


def is_file(module: str) -> bool:
    name = Path(*module.split(".")).with_suffix(".py")
    return any((package.parent / name).is_file() for package in (PACKAGE, COURSE, LAB))


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return one circle of imports, or nothing."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done or name not in graph:
            return []
        for other in sorted(graph[name]):
            found = visit(other, [*path, name])
            if found:
                return found
        done.add(name)
        return []

    return next((found for name in graph if (found := visit(name, []))), [])


def test_no_module_imports_in_a_circle():
    assert circle(module_graph()) == []


def test_the_circle_check_catches_a_circle():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


BLOCK_ALL_BUT_TORCH_AND_NUMPY = """
import sys, importlib.abc
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {
            "safetensors", "rich", "cyclopts", "matplotlib", "pydantic", "transformers", "scipy",
            "filelock",
        }:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
"""


def run_python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_attnlab_and_attending_needs_torch_and_numpy_alone():
    use = (
        "import attnlab, torch\n"
        "x = torch.eye(3)\n"
        "print(attnlab.attend(x, x, x, mask=attnlab.causal_mask(3)).weights[0].tolist())\n"
        "attnlab.multi_head_attention(4, 2)\n"
        "import rich\n"  # which the block really blocks
    )
    done = run_python(BLOCK_ALL_BUT_TORCH_AND_NUMPY + use)
    assert done.stdout.strip() == "[1.0, 0.0, 0.0]"
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.endswith("ImportError: rich is blocked\n")


def test_the_front_door_and_the_help_do_not_load_torch():
    code = "import sys\nfrom attnlab.cli import main\nmain(['--help'])"
    done = run_python(f"{code}\nassert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_the_face_is_what_its_stub_says_and_each_name_stands_there_once():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    names = [alias.asname for node in stub.body[1:-1] for alias in node.names]
    assert ast.unparse(stub.body[-1]) == "__version__: str"
    assert sorted([*names, "__version__"]) == sorted(attnlab.__all__) == dir(attnlab)
    assert len(names) == len(set(names))
    assert 40 < len(names) <= 54
    for node in stub.body[1:-1]:
        for alias in node.names:
            path = ".".join(filter(None, ("attnlab", node.module)))
            home = importlib.import_module(path)
            if node.module is None:  # a package, such as attnlab.plot
                assert getattr(attnlab, alias.asname) is importlib.import_module(
                    f"{path}.{alias.name}"
                )
            else:
                assert getattr(attnlab, alias.asname) is getattr(home, alias.name)


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"did you mean 'patch_all' or 'patch_paths'\?"):
        _ = attnlab.patch
    with pytest.raises(AttributeError, match=r"no attribute 'atend'; did you mean 'attend'\?"):
        attnlab.atend  # noqa: B018


def mapped_files(page: str) -> list[str]:
    """Return the files that a map names: lines `name  what it is` under folder lines `name/`."""
    block = re.search(r"<!-- map -->\n```\n(.*?)```", page, re.S)
    assert block, "there is no map"
    files, folders = [], []
    for line in block[1].splitlines():
        if not line.strip():
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, words = line.strip().partition("  ")
        folders = folders[:depth]
        if name.endswith("/"):
            folders.append(name)
        else:
            assert words.strip(), f"the map does not say what {name} is"
            files.append("".join(folders) + name)
    return files


def test_the_map_names_every_file_of_the_package_and_no_other():
    mapped = mapped_files((ROOT / "docs" / "ARCHITECTURE.md").read_text())
    on_disk = [
        str(path.relative_to(ROOT / "packages"))
        for path in sorted((ROOT / "packages").glob("*/src/**/*"))
        if path.suffix in {".py", ".js", ".css", ".html", ".h", ".cpp"}
        and "__pycache__" not in path.parts
        and not (path.name == "__init__.py" and path.parent.parent.name != "src")
    ]
    assert sorted(mapped) == sorted(on_disk)
    assert len(mapped) == len(set(mapped))


def test_long_files_are_split_or_say_why():
    # Where a reader loses the thread; longer ones need a reason here.
    reasons: dict[str, str] = {}
    long = {
        str(path.relative_to(source_of(path))): lines
        for path in ALL_SOURCES
        if (lines := len(path.read_text().splitlines())) > 521
        and str(path.relative_to(source_of(path))) not in reasons
    }
    assert long == {}


def test_no_pickle_and_no_print_in_the_library():
    forbidden = {"pickle", "marshal", "joblib", "dill", "shelve"}
    for path in ALL_SOURCES:
        for node in nodes_of(path):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not forbidden & set(names), path
            name = called(node) if isinstance(node, ast.Call) else ""
            wrong = {"print", "eval", "exec", "torch.load", "torch.save"}
            assert name not in wrong, f"{path}: {name}"


def test_the_tools_are_pinned_alike_everywhere():
    pyproject = (ROOT / "packages" / "attnlab" / "pyproject.toml").read_text()
    constraints = (ROOT / "constraints.txt").read_text()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    for tool in ("ruff", "mypy"):
        (version,) = re.findall(rf'"{tool}==([\d.]+)"', pyproject)
        assert f"{tool}=={version}\n" in constraints
    (ruff,) = re.findall(r'"ruff==([\d.]+)"', pyproject)
    assert f"rev: v{ruff}\n" in hooks


def missing_names(source: str) -> list[str]:
    """Return what a program imports from attnlab and attnlab does not have."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnlab"):
            module = importlib.import_module(node.module)
            found += [
                f"{node.module}.{alias.name}"
                for alias in node.names
                if not hasattr(module, alias.name) and not is_file(f"{node.module}.{alias.name}")
            ]
    return found


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_benchmarks_and_examples_import_what_there_is(folder):
    programs = sorted((ROOT / folder).glob("*.py"))
    assert programs
    assert [name for path in programs for name in missing_names(path.read_text())] == []


def test_a_name_that_is_gone_is_found():
    assert missing_names("from attnlab.seeds import generator, gone") == ["attnlab.seeds.gone"]


def test_packages_carry_the_license():
    """Copies, not links, which cannot be unpacked from an sdist."""
    for copy in (ROOT / "packages").glob("*/LICENSE"):
        assert not copy.is_symlink()
        assert copy.read_bytes() == (ROOT / "LICENSE").read_bytes()
