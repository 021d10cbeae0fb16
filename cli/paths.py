"""Paths as commands take them; click says what is wrong with one, before anything is done."""

from pathlib import Path

import click

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
EXISTING = click.Path(exists=True, path_type=Path)
"""A file or a folder."""
FILE = click.Path(dir_okay=False, path_type=Path)
"""That is there already, or will be written."""
FOLDER = click.Path(file_okay=False, path_type=Path)
ANY_PATH = click.Path(path_type=Path)
