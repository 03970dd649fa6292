"""Pictures: a matplotlib figure for each kind of section; `attnlab.draw.figures` saves them."""
