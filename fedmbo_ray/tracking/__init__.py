"""Sweeps shown in MLflow: what it is told, how it is kept up to date, and the best model."""
