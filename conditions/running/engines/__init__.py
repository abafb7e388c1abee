"""Engines that run episodes: this process, a pool of processes, or a Ray cluster."""
