"""The version, as printed with every row; a test holds it to the project file's."""

__version__ = "0.1.0"
