"""Conditions, one file each: which tools an agent is shown; and the running and storing of the grid of episodes."""
