import math

equal = "H1"
previous, first = "h3", "h2"
blind = first
e = math.exp(6)
weight = e / (2 + 2 * e)
