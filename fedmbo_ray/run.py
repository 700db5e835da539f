"""python -m fedmbo_ray.run: the same as `fedmbo run`."""

from fedmbo_ray.core.entry import enter

if __name__ == "__main__":
    enter("run")
