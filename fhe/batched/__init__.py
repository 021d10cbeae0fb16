"""The encrypted rule for thousands of queries at once: BGV, a query a slot."""
