"""Choosing the weights of the typed retriever on the development tasks, by nested cross-validation over tasks."""
