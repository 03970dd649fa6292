"""Where students' code runs: the process, what it sees, and what its replies may be."""
