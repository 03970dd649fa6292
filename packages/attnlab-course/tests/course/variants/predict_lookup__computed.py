import math

orders = math.factorial(5)
scrambled = "the same"
to_the_last_digit = "Equal up to rounding"
control = "different"
two_facts = 1 / 2
bound_facts = "always"
fixed_facts = "yes"
weights = 2 * 5 * 4
