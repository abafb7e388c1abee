"""What a run leaves on the disk: its header, its shards, and how several are merged."""
