"""What can be predicted exactly: second moments on the quadratic, and what they say about a config."""
