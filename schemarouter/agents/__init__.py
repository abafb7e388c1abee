"""Agents, one file each: what they see and do (`base`), and the specs that name them (`registry`)."""
