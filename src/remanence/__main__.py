"""`python -m remanence` is the command `remanence`."""

from remanence.cli.main import main

if __name__ == "__main__":
    main()
