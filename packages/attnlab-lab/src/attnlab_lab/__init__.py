"""The lab: a page in which small transformers train and can be edited, and its server."""
