#!/usr/bin/env python3
"""write.py LAKE: how fast DuckDB and Arrow write the rows of a lake anew, as Skua's files are: a file for each hour, sorted, zstd 3,
row groups of 65,536 rows. One thread each, as Skua has; reading and sorting are not in the time, as Skua's sorting is."""

import glob
import os
import sys
import tempfile
import time

import duckdb
import pyarrow
import pyarrow.parquet

GROUP = 65_536
hours = sorted(glob.glob(f"{sys.argv[1]}/flows/*/*"))
pyarrow.set_cpu_count(1)
db = duckdb.connect(config={"threads": 1})
spent = {"Arrow": [0.0, 0.0, 0], "DuckDB": [0.0, 0.0, 0]}
rows = 0


def timed(engine, write, path):
    wall, cpu = time.perf_counter(), time.process_time()
    write()
    took = spent[engine]
    took[0] += time.perf_counter() - wall
    took[1] += time.process_time() - cpu
    took[2] += os.path.getsize(path)
    os.unlink(path)


with tempfile.TemporaryDirectory() as work:
    path = f"{work}/x.parquet"
    for hour in hours:
        table = pyarrow.concat_tables(pyarrow.parquet.ParquetFile(f).read() for f in glob.glob(f"{hour}/*.parquet"))
        rows += table.num_rows
        bloom = {name: {"ndv": GROUP, "fpp": 0.01} for name in ("a_address", "b_address")}
        timed(
            "Arrow",
            lambda: pyarrow.parquet.write_table(
                table, path, compression="zstd", compression_level=3, row_group_size=GROUP, bloom_filter_options=bloom
            ),
            path,
        )
        db.register("source", table)
        db.execute("create or replace table hour as select * from source")
        copy = f"copy hour to '{path}' (format parquet, compression zstd, compression_level 3, row_group_size {GROUP})"
        timed("DuckDB", lambda: db.execute(copy), path)
for engine, (wall, cpu, size) in spent.items():
    print(f"{engine:<9} {rows} rows in {wall:.2f} s, {cpu:.2f} s of CPU: {rows / cpu:.0f} rows per CPU second, {size / rows:.1f} bytes a row")
