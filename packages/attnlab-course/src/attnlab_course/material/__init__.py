"""What several exercises share: parts in NumPy, designed heads, predictions."""
