"""The command `spark-conf`."""

import sys

import click

from planner.spark.plugin.build_jar import JarError, built_jar
from puffin_index.errors import PuffinIndexError


@click.command("spark-conf")
def spark_conf_command() -> None:
    """Print the settings that let any Spark application use indexes, whatever its driver is written in.

    They go into conf/spark-defaults.conf. Join spark.jars with your own by commas.
    """
    try:
        jar = built_jar()
    except JarError as error:
        raise PuffinIndexError(str(error)) from error
    click.echo("spark.plugins io.puffinindex.spark.PuffinIndexPlugin")
    click.echo(f"spark.jars {jar}")
    click.echo(f"spark.puffin-index.python {sys.executable}")
