"""Long documents: every head's summary, layer by layer into a folder, in bounded memory, to be gone on with."""

from attnlab.look.documents.document import Document, open_document
from attnlab.look.documents.summarising import Progress, summarise_document

__all__ = ["Document", "Progress", "open_document", "summarise_document"]
