"""What the typed retriever weighs: words, meaning, literals, needs and gives, the flow of what was observed, errors."""
