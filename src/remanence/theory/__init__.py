"""The theory: numpy and scipy, float64, log space, no torch."""
