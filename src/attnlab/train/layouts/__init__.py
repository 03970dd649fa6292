"""How members lie beside each other, and what computes their steps."""
