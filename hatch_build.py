"""The build hook of wheel and sdist: brings the jars of the Spark hook that are there, or can be compiled."""

from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class HookJars(BuildHookInterface[Any]):
    """Puts jars into the package: those of all releases in `make wheel`. Without one, the first use compiles it.

    A wheel that is built of an sdist has the jars of the sdist.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the jar of the installed Spark, and add all jars of the present sources."""
        del version
        building = run_path(f"{self.root}/planner/spark/build_jar.py")
        trouble = ""
        try:
            building["built_jar"](building["installed_release"]())
        except building["JarError"] as error:
            trouble = str(error)
        jars = [jar for jar in map(building["ready_jar"], building["RELEASES"]) if jar]
        if trouble and not jars:
            self.app.display_warning(trouble)
        build_data["artifacts"] += [f"/{jar.relative_to(self.root)}" for jar in jars]
