"""What is asked: tasks, their environment, the catalogs."""
