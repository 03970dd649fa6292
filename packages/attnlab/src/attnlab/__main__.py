"""`python -m attnlab` is the command `attnlab`."""

from attnlab.cli import program

if __name__ == "__main__":
    program()
