"""A release: one version everywhere, wheels of the same bytes, and lists that are complete."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

from release import sbom, version

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tree(tmp_path):
    """A copy of the files that a release writes."""
    places = [path for pattern in version.PLACES for path in ROOT.glob(pattern)]
    for path in (*places, ROOT / "CHANGELOG.md"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path


def test_all_files_say_one_version_and_it_is_the_tag_of_the_commit():
    assert len(version.versions()) == 6
    assert version.fault(version.versions(), version.tags_here()) == ""


def test_a_version_is_written_everywhere_with_what_the_packages_ask_of_one_another(tree):
    version.write("7.8.9", "2031-02-03", tree)
    found = version.versions(tree)
    assert set.union(*found.values()) == {"7.8.9"}
    assert version.fault(found, ["v7.8.9"]) == version.fault(found, []) == ""
    lab = (tree / "packages/attnlab-lab/pyproject.toml").read_text()
    assert '"attnlab[plot]==7.8.9"' in lab
    assert '"attnlab-course==7.8.9"' in lab
    assert "date-released: 2031-02-03\n" in (tree / "CITATION.cff").read_text()
    assert "## Unreleased\n\n## 7.8.9 (2031-02-03)\n" in (tree / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("CITATION.cff", "version: 0", "version: 9", "CITATION.cff: 9"),
        (
            "packages/attnlab-lab/pyproject.toml",
            "[plot]==",
            "[plot]==9",
            "attnlab-lab/pyproject.toml: 0",
        ),
        ("packages/attnlab/src/attnlab/__init__.py", "__version__ =", "version =", "none"),
    ],
)
def test_a_file_that_says_another_version_or_none_is_named(tree, file, old, new, words):
    path = tree / file
    path.write_text(path.read_text().replace(old, new))
    assert words in version.fault(version.versions(tree), [])


def copied_folders(root):
    """Return folders of packages with what looks like the work of others: a license of its own,
    minified lines, fonts, compiled files."""
    folders = set()
    for path in root.glob("packages/*/src/**/*"):
        is_binary = path.suffix in {".woff", ".woff2", ".ttf", ".otf", ".wasm", ".so"}
        is_minified = path.suffix in {".js", ".css", ".mjs"} and any(
            len(line) > 2_000 for line in path.read_text().splitlines()
        )
        if is_binary or is_minified or path.name.startswith(("LICENSE", "NOTICE", "COPYING")):
            folders.add(str(path.parent.relative_to(root)))
    return folders


def test_everything_that_is_vendored_is_listed_with_its_license():
    assert copied_folders(ROOT) == {entry["folder"] for entry in sbom.vendored()}
    for entry in sbom.vendored():
        assert {"what", "license", "source", "packages"} <= set(entry)
        assert list((ROOT / entry["folder"]).glob("LICENSE*")), entry["folder"]
        texts = [path.read_text() for path in (ROOT / entry["folder"]).iterdir()]
        for package in entry["packages"]:
            assert any(package in text for text in texts), f"{package} is not in {entry['folder']}"


@pytest.mark.parametrize(
    ("file", "content"), [("a.js", "x" * 3_000), ("a.woff2", ""), ("LICENSE", "MIT")]
)
def test_a_copied_file_that_is_not_listed_is_found(tmp_path, file, content):
    folder = tmp_path / "packages" / "one" / "src" / "one"
    folder.mkdir(parents=True)
    (folder / "ours.js").write_text("let x = 1;\n")
    assert copied_folders(tmp_path) == set()
    (folder / file).write_text(content)
    assert copied_folders(tmp_path) == {"packages/one/src/one"}


def test_vendored_packages_are_components_of_the_bill_of_materials(monkeypatch):
    entry = {"folder": "f", "license": "MIT", "packages": ["@lezer/lr@1.4.12", "crelt@1.0.7"]}
    monkeypatch.setattr(sbom, "vendored", lambda: [entry])
    scoped, plain = sbom.vendored_components()
    assert (scoped["name"], scoped["version"]) == ("@lezer/lr", "1.4.12")
    assert scoped["purl"] == "pkg:npm/%40lezer/lr@1.4.12"
    assert plain["purl"] == "pkg:npm/crelt@1.0.7"
    assert plain["licenses"] == [{"license": {"id": "MIT"}}]


CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def conda_needs(project, all_extras):
    """Return what a package needs as the recipe writes it, with what its extras stand for."""
    needs = [f"python {project['requires-python']}"]
    for requirement in project["dependencies"]:
        name, extra, rest = re.fullmatch(r"([\w-]+)(?:\[(\w+)\])?(.*)", requirement).groups()
        needs.append(f"{CONDA_NAMES.get(name, name)} {rest}")
        needs += conda_needs({**project, "dependencies": all_extras[extra]}, {}) if extra else []
    return sorted(set(needs))


def recipe_faults(recipe_text):
    """Return the outputs of the recipe that need anything else than their pyproject.toml says."""
    recipe = yaml.safe_load(recipe_text)
    faults = {}
    projects = {
        path.parent.name: tomllib.loads(path.read_text())["project"]
        for path in ROOT.glob("packages/*/pyproject.toml")
    }
    extras = projects["attnlab"]["optional-dependencies"]
    for output in recipe["outputs"]:
        project = projects.pop(output["package"]["name"])
        asked = []
        for need in output["requirements"]["run"]:
            for name, value in recipe["context"].items():
                need = need.replace("${{ " + name + " }}", value)
            asked.append(need)
        needs = conda_needs(project, extras)
        if needs != sorted(asked):
            faults[project["name"]] = sorted(set(needs) ^ set(asked))
    return faults | {name: ["has no output"] for name in projects}


def test_the_conda_recipe_needs_what_the_packages_need():
    assert recipe_faults((ROOT / "release" / "recipe.yaml").read_text()) == {}


@pytest.mark.parametrize(
    ("old", "new", "package"),
    [
        ("        - rich >=13\n", "", "attnlab"),
        ("cyclopts >=5,<6", "cyclopts >=5", "attnlab"),
        ("attnlab-course ==${{ version }}", "attnlab-course", "attnlab-lab"),
        ("        - uvicorn >=0.34\n", "        - uvicorn >=0.34\n        - six\n", "attnlab-lab"),
        ('python_min: "3.11"', 'python_min: "3.12"', "attnlab-course"),
    ],
)
def test_a_recipe_that_needs_something_else_is_found(old, new, package):
    text = (ROOT / "release" / "recipe.yaml").read_text()
    assert old in text
    assert package in recipe_faults(text.replace(old, new))


def workflow_faults(workflow_text):
    """Return where the hosted workflow does not run what it must on each Python of the packages."""
    jobs = yaml.safe_load(workflow_text)["jobs"]
    text = (ROOT / "packages/attnlab/pyproject.toml").read_text()
    pythons = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    faults = []
    for name, command in {
        "check": ".ci/run",
        "wheels": "make test-wheels",
        "docs": "make docs",
    }.items():
        job = jobs.get(name, {"steps": []})
        if command not in [step.get("run") for step in job["steps"]]:
            faults.append(f"no {command}")
        if name != "docs" and job.get("strategy", {}).get("matrix", {}).get("python") != pythons:
            faults.append(f"{name} on other Pythons")
    return faults


WORKFLOW = (ROOT / ".github" / "workflows" / "check.yml").read_text()


def test_the_hosted_workflow_runs_everything_on_each_python_of_the_packages():
    assert workflow_faults(WORKFLOW) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"3.12", ', "", "check on other Pythons"),
        ("- run: make test-wheels", "- run: make dist", "no make test-wheels"),
        ("  docs:", "  site:", "no make docs"),
    ],
)
def test_a_workflow_that_leaves_something_out_is_found(old, new, fault):
    assert old in WORKFLOW
    assert fault in workflow_faults(WORKFLOW.replace(old, new, 1))
