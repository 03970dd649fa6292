import math

num_inputs = 3**3
num_answers = math.comb(5, 2)
floor = 0.37
num_parameters = 6 * 3 + 3 * 3 + 6 * 3
hot_entry = 1 / 3
cold_row = "one-hot"
largest_rank = 3
tokens_seen = 5
midway_rate = 0.55
