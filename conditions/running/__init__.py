"""Running the grid: the plan, one episode's loop, and the run directory filled."""
