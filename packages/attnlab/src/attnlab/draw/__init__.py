"""Drawing: reports, pages and figures of results. Nothing here computes results."""
