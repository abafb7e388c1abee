"""The tasks, their environment and their catalogs."""
