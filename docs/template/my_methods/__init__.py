"""Templates, one per kind of thing that can be added to fedmbo_ray."""
