"""Where blocks are computed: in this process, several runs side by side, or on Ray."""
