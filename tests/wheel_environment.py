"""The wheel of this checkout, and new environments with it; nothing is downloaded: other packages are linked."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[1]
_OURS = ("puffin_index", "_editable_impl", "__pycache__")
_FOREIGN_VARIABLES = ("PYTHONPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV")


def build_wheel(folder: Path) -> Path:
    return build(folder, "wheel")


def build(folder: Path, target: str) -> Path:
    """Build the "wheel" or the "sdist" of this checkout in an empty folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def make_environment(folder: Path, wheel: Path, left_out: tuple[str, ...] = ()) -> Path:
    """Make an environment of a wheel and what it depends on, but some packages by prefix; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith((*_OURS, *left_out)):
            (packages / entry.name).symlink_to(entry)
    command = ["uv", "pip", "install", "--offline", "--no-deps", "--quiet", "--python", str(python), str(wheel)]
    subprocess.run([sys.executable, "-m", *command], check=True)
    return python


def run(
    *command: object,
    cwd: Path = Path("/"),
    environment: Mapping[str, str] = MappingProxyType({}),
    path: Path | None = None,
    entered: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program as somebody would who has not activated any environment, with programs of `path` to be found."""
    clean = {name: value for name, value in os.environ.items() if name not in _FOREIGN_VARIABLES}
    own = str(Path(sys.executable).parent)
    folders = [*([str(path)] if path else []), *(folder for folder in clean["PATH"].split(os.pathsep) if folder != own)]
    variables = {**clean, "PATH": os.pathsep.join(folders), **environment}
    return subprocess.run(
        [*map(str, command)], input=entered, capture_output=True, text=True, cwd=cwd, env=variables, check=False
    )
