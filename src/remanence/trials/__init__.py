"""Run a method and measure as it goes: time to unlearn, tuning."""
