"""The paper's figures as studies: TOML files that become stages, figures and verdicts."""
