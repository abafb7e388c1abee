"""The evidence of the typed retriever: words, meaning, literals, needs and gives, the flow of observed values, errors."""
