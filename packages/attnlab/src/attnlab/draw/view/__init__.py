"""The interactive view: a recording as one page, quantized with a stated error within a budget."""

from attnlab.draw.view.page import show_page, view_page, write_view

__all__ = ["show_page", "view_page", "write_view"]
