"""The command `spark-conf`."""

import sys

import click

from planner.spark.build_jar import RELEASES, JarError, built_jar, installed_release
from puffin_index.errors import PuffinIndexError


@click.command("spark-conf")
@click.option(
    "--release", type=click.Choice(RELEASES), help="The application's Spark and Scala; default: what is here."
)
def spark_conf_command(release: str | None) -> None:
    """Print the settings that let any Spark application use indexes, whatever its driver is written in.

    They go into conf/spark-defaults.conf. Join spark.jars with your own by commas.
    """
    try:
        jar = built_jar(release or installed_release())
    except JarError as error:
        raise PuffinIndexError(str(error)) from error
    click.echo("spark.plugins io.puffinindex.spark.PuffinIndexPlugin")
    click.echo(f"spark.jars {jar}")
    click.echo(f"spark.puffin-index.python {sys.executable}")
