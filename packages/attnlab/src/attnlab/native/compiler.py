"""From C++ to callable functions: compiled once, kept in a folder that only its owner may write.

The file's name is the hash of everything that decides what is in it; a second hash, of the bytes,
is held against them before they are ever loaded. `CXX` names another compiler, `CXXFLAGS` adds to
its flags, `XDG_CACHE_HOME` moves the folder.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

_FLAGS = (
    "-std=c++17", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
    "-fPIC", "-shared", "-Wno-psabi",
)  # fmt: skip
_PATIENCE = 300  # seconds that a compiler may take


class NotCompiled(Exception):
    """There is no compiler, or it cannot compile this; the message says which."""


@cache
def vector_bytes() -> int:
    """Return the bytes of the widest vectors here: 64, 32 or 16."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return 16
    if "avx512f" in flags and "avx512dq" in flags:
        return 64
    return 32 if "avx2" in flags else 16


def vectors(*, is_double: bool = False, width: int | None = None) -> str:
    """Return the head of a source: the vector type and its operations.

    Args:
        is_double: the numbers are of 8 bytes, otherwise of 4.
        width: the bytes of a vector; None for the widest here.
    """
    width = width or vector_bytes()
    size = 8 if is_double else 4
    facts = {"VECTOR_BYTES": width, "W": width // size, "IS_DOUBLE": int(is_double)}
    lines = [f"#define {name} {value}" for name, value in facts.items()]
    return "\n".join([*lines, Path(__file__).with_name("vectors.h").read_text()])


def compiled(source: str, *, name: str, has: str, flags: Sequence[str] = ("-O2",)) -> Any:
    """Return the library of a source, compiled now or before.

    Args:
        source: C++17, whole.
        name: the folder that it is kept in, below the user's cache.
        has: a function that the library must have.
        flags: for the compiler, besides those that all have.

    Raises:
        NotCompiled: there is no compiler, or it does not compile this.
    """
    compiler = _compiler()
    flags = [*_FLAGS, *flags, *shlex.split(os.environ.get("CXXFLAGS", ""))]
    facts = (source, _version(compiler), " ".join(flags), _processor())
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    folder = _folder(name)
    library, seal = folder / f"{key}.so", folder / f"{key}.sha256"
    if not _is_sound(library, seal):
        content = _built([compiler, *flags], source)
        try:
            _replace(library, content)
            _replace(seal, hashlib.sha256(content).hexdigest().encode())
        except OSError as error:
            raise NotCompiled(f"the compiled functions could not be kept ({error})") from None
    try:
        loaded = ctypes.CDLL(str(library))
        getattr(loaded, has)
        return loaded
    except (OSError, AttributeError) as error:
        seal.unlink(missing_ok=True)  # so that it is compiled anew the next time
        raise NotCompiled(f"the compiled functions could not be loaded ({error})") from None


def compiler_name() -> str | None:
    """Return the program that compiles: CXX, g++ or clang++; None where there is none."""
    named = os.environ.get("CXX")
    if named:
        return shutil.which(named)
    return shutil.which("g++") or shutil.which("clang++")


def _compiler() -> str:
    compiler = compiler_name()
    if compiler is None:
        named = os.environ.get("CXX")
        looked = f"{named} (from CXX)" if named else "g++ or clang++"
        raise NotCompiled(
            f"no C++ compiler was found; looked for {looked} (Debian and Ubuntu: apt install g++)"
        )
    return compiler


@cache
def _version(compiler: str) -> str:
    try:
        done = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotCompiled(f"{compiler} does not run ({error})") from None
    return f"{compiler}\n{done.stdout}"


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        kinds = ("model name", "flags", "Features")
        return "\n".join(line for line in lines if line.startswith(kinds))
    except OSError:
        return platform.processor() + platform.machine()


def _folder(name: str) -> Path:
    """Return the folder of what is compiled: one that only its owner may write, or a new one for
    this process."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "attnlab" / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
        if status.st_uid == os.getuid() and status.st_mode & 0o077:
            folder.chmod(0o700)
            status = folder.stat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        is_private = is_ours and not status.st_mode & 0o077
        if is_private and os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):
        pass
    return _temporary(name)


@cache
def _temporary(name: str) -> Path:
    folder = tempfile.TemporaryDirectory(prefix=f"attnlab-{name}-")
    _kept.append(folder)  # removed when the process ends
    return Path(folder.name)


_kept: list[Any] = []


def _is_sound(library: Path, seal: Path) -> bool:
    try:
        return hashlib.sha256(library.read_bytes()).hexdigest() == seal.read_text()
    except (OSError, ValueError):
        return False


def _built(command: list[str], source: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="attnlab-native-") as name:
        text, library = Path(name) / "source.cpp", Path(name) / "library.so"
        text.write_text(source)
        try:
            subprocess.run(
                [*command, str(text), "-o", str(library)],
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=True,
            )
            return library.read_bytes()
        except subprocess.CalledProcessError as error:
            wrong = [line for line in error.stderr.splitlines() if "error" in line]
            first = wrong[0] if wrong else error.stderr[:200]
            raise NotCompiled(f"{command[0]} does not compile it: {first}") from None
        except (OSError, subprocess.SubprocessError) as error:
            raise NotCompiled(f"{command[0]} does not compile it ({error})") from None


def _replace(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
