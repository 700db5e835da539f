"""One run: built from its config, looped over rounds, kept in its folder, watched."""
