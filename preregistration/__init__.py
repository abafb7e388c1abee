"""What was promised: the protocol, typed, and its lock."""
