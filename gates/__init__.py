"""What it means: replay, measures, intervals, aggregate, gate."""
