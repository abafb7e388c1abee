"""SchemaRouter Research: does retrieval from typed, observed execution state bring a missed tool back?"""

__version__ = "0.1.0"
