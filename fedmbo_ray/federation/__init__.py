"""The clients as an algorithm sees them: who is asked, what they compute, what it costs, how it is put together."""
