"""attnlab: the attention workbench."""
