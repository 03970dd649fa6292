"""The interactive view: recordings as one page that opens from disk, quantised with a stated error, within a budget."""

from attnlab.draw.view.page import show_page, view_page, write_view

__all__ = ["show_page", "view_page", "write_view"]
