"""The build hook of the wheel: brings the jars of the Spark hook that are there, or can be compiled."""

from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class HookJars(BuildHookInterface[Any]):
    """Puts jars into the package: those of all releases in `make wheel`. Without one, the first use compiles it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the jar of the installed Spark, and add all jars of the present sources."""
        del version
        building = run_path(f"{self.root}/planner/spark/build_jar.py")
        try:
            building["built_jar"](building["installed_release"]())
        except building["JarError"] as error:
            self.app.display_warning(str(error))
        jars = filter(None, map(building["ready_jar"], building["RELEASES"]))
        build_data["artifacts"] += [f"/{jar.relative_to(self.root)}" for jar in jars]
