"""Speed, side by side: `python -m benchmarks`. How the figures are made is in docs/performance.md."""
