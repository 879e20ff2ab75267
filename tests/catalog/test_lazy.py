import subprocess
import sys

CODE = """
import builtins, io, pathlib
opened = []
real = pathlib.Path.read_text
pathlib.Path.read_text = lambda self, *a, **k: (opened.append(self.name), real(self, *a, **k))[1]
import inferometer.catalog.loader as loader
assert not opened, opened
loader.find_chip("h100")
assert opened == ["chips.csv"], opened
"""


def test_nothing_is_read_at_import():
    subprocess.run([sys.executable, "-c", CODE], check=True)
