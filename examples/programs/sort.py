"""Sort the letters: each goes to the place that counts the letters before it in order."""

from attnlab.programs import Program, aggregate, indices, select, selector_width, tokens

smaller = select(tokens, tokens, "<")
equal_and_before = select(tokens, tokens, "==") & select(indices, indices, "<")
place = selector_width(smaller | equal_and_before)
output = aggregate(select(place, indices, "=="), tokens)
program = Program(output, "abc", "sort")
