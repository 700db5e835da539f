"""Which sweeps answer which question, and a study's own run in MLflow."""
