"""The bill of materials of the wheels, in CycloneDX: what they bring into an empty environment.

    python release/sbom.py .venv/wheels/bin/python dist/attnlab.cdx.json

cyclonedx-py lists the distributions of an environment with their licenses; what is copied into this
repository, as vendored.toml says, is added.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VENDORED = Path(__file__).with_name("vendored.toml")


def vendored() -> list[dict[str, Any]]:
    """Return what is copied into this repository from elsewhere: folder, license, packages."""
    return list(tomllib.loads(VENDORED.read_text()).get("vendored", []))


def vendored_components() -> list[dict[str, Any]]:
    """Return vendored packages as components of a bill of materials."""
    return [
        {
            "type": "library",
            "bom-ref": f"vendored:{package}",
            "name": package.rpartition("@")[0],
            "version": package.rpartition("@")[2],
            "licenses": [{"license": {"id": entry["license"]}}],
            "purl": f"pkg:npm/{package.replace('@', '%40', package.startswith('@'))}",
            "properties": [{"name": "attnlab:folder", "value": entry["folder"]}],
        }
        for entry in vendored()
        for package in entry["packages"]
    ]


def main(python: str, out: str) -> None:
    """Write the bill of materials of the environment of an interpreter."""
    options = ["--output-reproducible", "--of", "JSON", "-o", out, python]
    subprocess.run([sys.executable, "-m", "cyclonedx_py", "environment", *options], check=True)
    bill = json.loads(Path(out).read_text())
    bill["components"] += vendored_components()
    Path(out).write_text(json.dumps(bill, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
