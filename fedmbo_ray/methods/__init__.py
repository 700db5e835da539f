"""Everything a paper would describe: lower solvers, hypergradient estimators, whole algorithms, step sizes."""
