"""The version of all packages: shown, set, and held against the tag of the commit.

    python release/version.py          # print it; fail where two files or the commit's tag differ
    python release/version.py 0.2.0    # write it everywhere, and begin its chapter of the changes

A release is a commit with the tag vX.Y.Z whose files say X.Y.Z; until the next one, they say the
next version and `.dev0`. The version is text in the files, not computed from tags, so that it is
the same from an archive, a clone without tags and an editable install, and so that the packages can
ask for one another's version: attnlab-course and attnlab-lab use modules of attnlab about which
nothing is promised.
"""

import datetime
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FORM = r"\d+\.\d+\.\d+(?:\.dev0)?"
PLACES = {
    "packages/*/pyproject.toml": rf'^version = "({FORM})"$|"attnlab[^"]*==({FORM})"',
    "packages/attnlab/src/attnlab/__init__.py": rf'^__version__ = "({FORM})"$',
    "CITATION.cff": rf"^version: ({FORM})$",
    "release/recipe.yaml": rf'^  version: "({FORM})"$',
}
"""The files that say the version, and where in them."""


def versions(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the versions that each file says."""
    return {
        str(path.relative_to(root)): {
            part
            for match in re.finditer(place, path.read_text(), re.M)
            for part in match.groups("")
            if part
        }
        for pattern, place in PLACES.items()
        for path in sorted(root.glob(pattern))
    }


def fault(found: dict[str, set[str]], tags: list[str]) -> str:
    """Return what is wrong with the versions of the files and the tags of the commit, or ''."""
    if len(set.union(*found.values())) != 1 or not all(found.values()):
        lines = [f"  {file}: {', '.join(sorted(said)) or 'none'}" for file, said in found.items()]
        return "\n".join(["expected one version in all files; got", *lines])
    (version,) = set.union(*found.values())
    wrong = [tag for tag in tags if tag != f"v{version}"]
    if wrong:
        return f"the commit has the tag {wrong[0]}, and its files say {version}; see {__file__}"
    return ""


def tags_here(root: Path = ROOT) -> list[str]:
    """Return the version tags of this commit; none without git."""
    try:
        command = ["git", "tag", "--points-at", "HEAD", "--list", "v[0-9]*"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.split()


def write(version: str, today: str, root: Path = ROOT) -> None:
    """Write a version into all files; one that is to be released begins its chapter of changes."""
    for pattern, place in PLACES.items():
        for path in root.glob(pattern):
            new = re.sub(
                place, lambda match: re.sub(FORM, version, match[0]), path.read_text(), flags=re.M
            )
            path.write_text(new)
    if not version.endswith(".dev0"):
        citation, changes = root / "CITATION.cff", root / "CHANGELOG.md"
        dated = re.sub(
            r"^date-released: .*$", f"date-released: {today}", citation.read_text(), flags=re.M
        )
        citation.write_text(dated)
        heading = f"## Unreleased\n\n## {version} ({today})\n"
        changes.write_text(changes.read_text().replace("## Unreleased\n", heading, 1))


def main(arguments: list[str]) -> str:
    """Show or write the version; return what is wrong, or ''."""
    if arguments:
        if not re.fullmatch(FORM, arguments[0]):
            return f"expected a version such as 0.2.0 or 0.2.0.dev0; got {arguments[0]!r}"
        write(arguments[0], datetime.date.today().isoformat())
        return ""
    wrong = fault(versions(), tags_here())
    if not wrong:
        sys.stdout.write(f"{set.union(*versions().values()).pop()}\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
