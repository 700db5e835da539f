"""The Python interface: runs, sweeps and studies as objects."""
