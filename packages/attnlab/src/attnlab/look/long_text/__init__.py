"""Long texts: the summaries of every head, written layer by layer in bounded memory, and
resumable."""

from attnlab.look.long_text.long_text import Document, open_document
from attnlab.look.long_text.summarize import DocumentProgress, summarize_document

__all__ = ["Document", "DocumentProgress", "open_document", "summarize_document"]
