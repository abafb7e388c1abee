"""Running the grid: its plan, the loop of one episode, and filling a run directory."""
