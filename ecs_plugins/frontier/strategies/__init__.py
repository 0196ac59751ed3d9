"""Context strategies: what is prepared once, and what is sent with each question."""
