"""The command line. Imports wait until a command runs, so that --help is quick."""


def main() -> None:
    """Entry point of the ``tacit`` command."""
    from tacit.cli.app import run

    run()
