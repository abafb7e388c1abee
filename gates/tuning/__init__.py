"""Fits the weights of the typed retriever to the development tasks, by nested cross-validation over tasks.

``decision_points`` -> ``design`` (features and fitted weights) -> ``logit`` (the fit) -> ``search`` (folds and penalties)
-> ``conditions`` (the experiment under out-of-fold weights) -> ``report`` (the record that `tune` returns).
"""
