"""attnlab.course: check an answer in a notebook; the package attnlab-course has it.

`import attnlab.course` in a notebook is what students write, whatever is installed where.
"""

from attnlab.errors import CouldNotRun

try:
    from attnlab_course.notebook import check as check
except ModuleNotFoundError as error:
    if error.name != "attnlab_course":
        raise
    raise CouldNotRun(
        "attnlab.course needs the package attnlab-course: pip install attnlab-course"
    ) from None
