"""Templates, one for each kind of component that can be added to fedmbo_ray."""
