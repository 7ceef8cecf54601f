"""The dashboard: runs and their examples, looked at in a browser on this machine (extra `web`)."""
