"""Figures and tables from recorded runs. Nothing here imports an algorithm."""
