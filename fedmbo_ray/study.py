"""python -m fedmbo_ray.study: the same as `fedmbo study`."""

from fedmbo_ray.core.entry import enter

if __name__ == "__main__":
    enter("study")
