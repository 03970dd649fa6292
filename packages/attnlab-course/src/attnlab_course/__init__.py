"""The course: exercises on attention, checks that name the mistake, and grading in a sandbox."""

from attnlab_course.notebook import check as check
