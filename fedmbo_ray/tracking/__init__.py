"""Records sweeps in MLflow: what is sent, how it is kept up to date, and the best model."""
