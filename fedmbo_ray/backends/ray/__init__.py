"""Client actors: how they are placed, reached, led and replaced."""
