"""Pictures: one kind of section in, one matplotlib figure out; the files are made in `attnlab.draw.figures`."""
