"""The preregistration: the protocol, typed, and its lock."""
