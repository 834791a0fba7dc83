"""The build hook of the wheel: brings the plugin's jar, where Spark's jars and javac are there to compile it."""

from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PluginJarHook(BuildHookInterface[Any]):
    """Compiles the jar into the package. Without it, `puffin-index spark-conf` compiles it on first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the jar for a wheel or an editable installation."""
        del version
        building = run_path(f"{self.root}/planner/spark/plugin/build_jar.py")
        try:
            jar = building["built_jar"]()
        except building["JarError"] as error:
            self.app.display_warning(str(error))
        else:
            build_data["artifacts"].append(f"/{jar.relative_to(self.root)}")
