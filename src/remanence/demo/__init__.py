"""The whole story on scikit-learn's digits."""
