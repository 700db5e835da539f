"""What the implicit term does, learning x at all, and two levels instead of one: the table of docs/problems.md.

Each shipped config runs with many seeds as it is, without the implicit term, with x frozen, and as ordinary training. A
seed fixes the split of the data over clients and the starting point, so that arms are compared seed by seed.
"""
