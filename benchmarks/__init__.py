"""Speed and memory, side by side in one run: ``make bench``.

Nothing here is part of the experiment, and no test asserts a time.
"""
