"""`python -m hipwright`."""

from hipwright.cli.main import run

if __name__ == "__main__":
    run()
