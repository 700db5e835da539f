"""What theory predicts on the quadratic: the recursion of second moments, and what it says about a config."""
