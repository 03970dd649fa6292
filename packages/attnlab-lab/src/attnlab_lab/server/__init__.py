"""The server of the lab: the page with PyTorch behind it, on this machine alone."""
