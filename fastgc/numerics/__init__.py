"""The mathematics that codes stand on: systems, polynomials, graphs, checks."""
