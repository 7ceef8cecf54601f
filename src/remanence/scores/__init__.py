"""How hard each example is to forget: the privacy loss and its proxies, one contract."""
