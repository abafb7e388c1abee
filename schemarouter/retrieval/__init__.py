"""Retrievers: one file each."""
