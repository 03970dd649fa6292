"""Experiments: `config → run → report`, one system a package."""
