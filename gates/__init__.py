"""From the records of a run to its verdict. Each module takes what the one before it gives.

1. ``replay``: runs a record's calls again, checks every event (``exposure_checks`` those of the conditions), gives a `Timeline`.
2. ``recall_events``: counts the recall events of a timeline; ``measures``: counts everything of it, and defines every
   measure as a ratio of two sums of counts.
3. ``episode_table``: the counts of all episodes as one array, and their sums by condition, catalog and task.
4. ``aggregate``: reads the shards of a complete run through 1 to 3, and writes ``aggregate.json``.
5. ``statistics``: bootstrap draws (``bootstrap``) and confidence intervals (``intervals``) of those sums.
6. ``criteria``: the six criteria on those sums and intervals.
7. ``gate``: `judge`, which puts criteria, measures and slices together in a ``verdict`` document.

Beside that line: ``identities``, ``behaviour_hashes``, ``run_header`` and ``exploratory`` (what a run rests on, and its
stamp), ``repeats``, ``reproduce``, ``confirmatory_result``, and ``tuning``, which fits the weights of the typed retriever.
"""
