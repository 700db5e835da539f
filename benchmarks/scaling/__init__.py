"""How long a round takes on how many nodes: measured here, and by a model for clusters that are not here."""
