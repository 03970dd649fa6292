"""attnlab.course: the package attnlab-course by the name that students and teachers type.

`attnlab.course.catalog` is the module `attnlab_course.catalog` itself, not a second copy of it.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from attnlab.errors import CouldNotRun

try:
    import attnlab_course
except ModuleNotFoundError as error:
    if error.name != "attnlab_course":
        raise
    raise CouldNotRun(
        "attnlab.course needs the package attnlab-course: pip install attnlab-course"
    ) from None


class _SameModules(MetaPathFinder, Loader):
    """Imports `attnlab.course.NAME` as `attnlab_course.NAME`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{__name__}."):
            return None
        real = importlib.import_module(f"attnlab_course{fullname.removeprefix(__name__)}")
        return ModuleSpec(fullname, self, loader_state=real.__spec__)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return sys.modules[f"attnlab_course{spec.name.removeprefix(__name__)}"]

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # the import system had put ours there


sys.meta_path.insert(0, _SameModules())
__path__ = attnlab_course.__path__


def __getattr__(name: str) -> object:
    return getattr(attnlab_course, name)
