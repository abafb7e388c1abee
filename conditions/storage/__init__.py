"""A run on disk: its header, its shards, and how shards of several directories are merged."""
