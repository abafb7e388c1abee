"""What is shown: one file a condition, the episode loop, the grid and its run directory."""
