equal, previous, first, blind = "h1", "h3", "h2", "h2"
weight = 0.3
