"""`scripts/find-java` on made-up homes of Java, with a path on which nothing of this machine can be installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "find-java"
TOOLS = ("bash", "dirname", "mkdir", "readlink", "sed")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with all programs that the script finds: no `apt-get`, no Java, and a user who is not root."""
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    program(tmp_path / "bin" / "id", "echo 1000")
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
    path.chmod(0o755)


def java_home(home: Path, version: str, *, compiles: bool) -> Path:
    program(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2026-01-01' >&2")
    if compiles:
        program(home / "bin" / "javac", "true")
    return home


def find(machine: Path, *arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine / "bin"), "JVM_FOLDER": str(machine / "jvm")}
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    line = [str(machine / "bin" / "bash"), str(SCRIPT), *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


def test_a_runtime_is_passed_over_where_a_compiler_is_needed(machine: Path) -> None:
    runtime = java_home(machine / "jre", "21.0.1", compiles=False)
    kit = java_home(machine / "jvm" / "jdk 17", "17.0.9", compiles=True)
    assert find(machine, home=runtime).stdout.strip() == str(runtime)
    assert find(machine, "javac", home=runtime).stdout.strip() == str(kit)
    assert find(machine, "javac", home=kit).stdout.strip() == str(kit)


def test_a_java_on_the_path_stands_for_its_home(machine: Path) -> None:
    kit = java_home(machine / "opt" / "jdk", "25", compiles=True)
    os.symlink(kit / "bin" / "java", machine / "bin" / "java")
    assert find(machine, "javac").stdout.strip() == str(kit)


@pytest.mark.parametrize(
    ("version", "compiles", "said"),
    [
        ("17.0.9", False, "Java 17 is here ({}), but only as a runtime without javac: install a JDK"),
        ("11.0.2", True, "Java 17 or newer is needed and was not found: install a JDK"),
        ("1.8.0_392", False, "Java 17 or newer is needed and was not found: install a JDK"),
        ("unheard of", True, "Java 17 or newer is needed and was not found: install a JDK"),
    ],
)
def test_one_sentence_says_what_is_missing(machine: Path, version: str, compiles: bool, said: str) -> None:
    home = java_home(machine / "jvm" / "some", version, compiles=compiles)
    found = find(machine, "javac")
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith(said.format(home))
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("works", [True, False])
def test_root_of_a_debian_gets_the_kit_beside_the_runtime(machine: Path, works: bool) -> None:
    java_home(machine / "jvm" / "jre", "17.0.9", compiles=False)
    kit = java_home(machine / "packed", "17.0.9", compiles=True)
    program(machine / "bin" / "id", "echo 0")
    move = f'mkdir -p {machine}/jvm/jdk/bin && for one in java javac; do printf "%s" "$(<{kit}/bin/$one)" '
    move += f"> {machine}/jvm/jdk/bin/$one; /bin/chmod 755 {machine}/jvm/jdk/bin/$one; done"
    done = f'[ "$1" = update ] || {{ {move}; }}' if works else "exit 100"
    program(machine / "bin" / "apt-get", f'echo "$@" >> {machine}/asked\n{done}')

    found = find(machine, "javac")

    assert (machine / "asked").read_text().splitlines()[0].startswith("update")
    if works:
        assert "openjdk-17-jdk-headless" in (machine / "asked").read_text()
        assert (found.returncode, found.stdout.strip()) == (0, str(machine / "jvm" / "jdk"))
    else:
        assert found.returncode == 1
        assert "only as a runtime without javac" in found.stderr


def test_an_unknown_program_is_refused_and_nothing_is_installed_for_it(machine: Path) -> None:
    java_home(machine / "jvm" / "jdk", "17.0.9", compiles=True)
    program(machine / "bin" / "id", "echo 0")
    program(machine / "bin" / "apt-get", f"echo called > {machine}/asked")
    assert find(machine, "javadoc").returncode == 2
    assert not (machine / "asked").exists()
