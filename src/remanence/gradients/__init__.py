"""Per-example gradient norms of any `nn.Module`."""
