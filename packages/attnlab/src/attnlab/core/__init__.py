"""What every floor stands on: the store that keeps folders, and statistics."""
