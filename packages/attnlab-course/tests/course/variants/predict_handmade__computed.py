from math import exp, sqrt

e = exp(2 * 2 / sqrt(3))
own_weight = e / (e + 2)
two_alike = round(e / (2 * e + 1), 2)
longer = "a little larger"
new_numbers = "Nothing"
blind = "only inputs of one letter repeated"
no_queries = "the mean of the values"
overflow = "NaN"
double = "only the output doubles"
order = "are put into the same order "
wider = "flatter"
