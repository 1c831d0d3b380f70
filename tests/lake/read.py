#!/usr/bin/env python3
"""read.py local|s3|hdfs PLACE SAID: other engines read a lake that `lake_speed` filled, and find what SAID, its output, says.

DuckDB, ClickHouse (chDB) and Arrow, each by its own way to the store where it has one. Statistics and bloom filters
must help them: they say themselves how much they read."""

import datetime
import json
import re
import sys

import chdb
import duckdb
import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

KIND, PLACE, SAID = sys.argv[1:]
KEY, SECRET, S3 = "skua", "skua-secret", "127.0.0.1:15555"
WANTED = tuple(map(int, re.search(r"sums +ab (\d+) ba (\d+) rows (\d+)", open(SAID).read()).groups()))
SERVICES = 40
PARTITIONS = pyarrow.dataset.partitioning(
    pyarrow.schema([("date", pyarrow.string()), ("hour", pyarrow.string())]), flavor="hive"
)


def check(engine, found, wanted=WANTED):
    found = tuple(found)
    assert found == wanted, f"{engine}: {found}, not {wanted}"


def arrow_filesystem():
    """A file system of Arrow for the place, and the path of the table in it."""
    if KIND == "local":
        return pyarrow.fs.LocalFileSystem(), f"{PLACE}/flows"
    if KIND == "s3":
        system = pyarrow.fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=S3, scheme="http", region="us-east-1"
        )
        return system, PLACE.removeprefix("s3://") + "/flows"
    import fsspec

    server, _, path = PLACE.removeprefix("hdfs://").partition("/")
    host, port = server.split(":")
    # By WebHDFS, which has the port above.
    system = fsspec.filesystem("webhdfs", host=host, port=int(port) + 1, user="root", kerberos=False)
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(system)), f"/{path}/flows"


def arrow():
    system, path = arrow_filesystem()
    data = pyarrow.dataset.dataset(path, filesystem=system, format="parquet", partitioning=PARTITIONS)
    table = data.to_table(columns=["ab_bytes", "ba_bytes", "service", "time", "hour"])
    total = pyarrow.compute.sum
    check("Arrow", (total(table["ab_bytes"]).as_py(), total(table["ba_bytes"]).as_py(), table.num_rows))
    assert len(table["service"].unique()) == SERVICES
    for hour in table["hour"].unique().to_pylist():
        times = table.filter(pyarrow.compute.field("hour") == hour)["time"]
        for time in pyarrow.compute.min_max(times).as_py().values():
            utc = time.astimezone(datetime.timezone.utc)
            assert utc.hour == int(hour), (hour, time)
    groups = kept = 0
    wanted = pyarrow.compute.field("service") == "service-7.service"
    for fragment in data.get_fragments():
        groups += fragment.num_row_groups
        kept += len(fragment.split_by_row_group(wanted))
    assert kept <= groups, (kept, groups)
    print(f"Arrow {pyarrow.__version__}: the same sums; statistics leave {kept} of {groups} row groups of a service")
    return system, data


def clickhouse_source():
    if KIND == "local":
        return f"file('{PLACE}/flows/*/*/*.parquet', Parquet)"
    if KIND == "s3":
        path = PLACE.removeprefix("s3://")
        return f"s3('http://{S3}/{path}/flows/*/*/*.parquet', '{KEY}', '{SECRET}', 'Parquet')"
    return f"hdfs('{PLACE}/flows/*/*/*.parquet', 'Parquet')"


def clickhouse():
    source = clickhouse_source()

    def ask(question, settings=""):
        return json.loads(chdb.query(f"{question} {settings}", "JSON").bytes())

    row = ask(f"select sum(ab_bytes) a, sum(ba_bytes) b, count() c, uniq(service) s from {source}")["data"][0]
    check("ClickHouse", (int(row["a"]), int(row["b"]), int(row["c"])))
    assert int(row["s"]) == SERVICES
    # An address that is between others and was never seen: only its bloom filter can tell.
    absent = f"select count() from {source} where a_address = '10.0.0.10x'"
    settings = (
        "settings input_format_parquet_bloom_filter_push_down={}, input_format_parquet_dictionary_filter_push_down=0"
    )
    without, with_it = (ask(absent, settings.format(on))["statistics"]["rows_read"] for on in (0, 1))
    assert without > 0 == with_it, (without, with_it)
    version = ask("select version() v")["data"][0]["v"]
    print(f"ClickHouse {version}: the same sums; bloom filters spare {without} rows")


def duck(system, data):
    db = duckdb.connect()
    if KIND == "local":
        db.execute(
            f"create view flows as select * from read_parquet('{PLACE}/flows/*/*/*.parquet', hive_partitioning = true)"
        )
    else:
        # It reads by Arrow's file system: its own client for S3 is an extension that has to be downloaded.
        db.register("flows", data)
    check("DuckDB", db.execute("select sum(ab_bytes), sum(ba_bytes), count(*) from flows").fetchone())
    hours = db.execute("select distinct date, hour from flows").fetchall()
    assert len(hours) in (3, 4), hours
    services = db.execute("select count(distinct service) from flows").fetchone()[0]
    assert services == SERVICES, services
    told = "the same sums"
    if KIND == "local":
        files = f"{PLACE}/flows/*/*/*.parquet"
        spared, groups = db.execute(
            f"select sum(bloom_filter_excludes::int), count(*) from parquet_bloom_probe('{files}', 'a_address', '10.0.0.10x')"
        ).fetchone()
        assert spared == groups > 0, (spared, groups)
        without = db.execute(
            f"select count(*) from parquet_metadata('{files}') where stats_min_value is null and num_values > stats_null_count"
        ).fetchone()[0]
        assert without == 0, f"{without} columns have no statistics"
        told += f"; bloom filters rule out {spared} of {groups} row groups"
    print(f"DuckDB {duckdb.__version__}: {told}")


duck(*arrow())
clickhouse()
