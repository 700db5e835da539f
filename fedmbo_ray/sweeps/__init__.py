"""A sweep: its dimensions and config, its folder, what a trial does, and how Ray Tune runs them."""
