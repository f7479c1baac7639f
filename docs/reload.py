"""Draws what a reader sees of a table while it is loaded anew: docs/reload.py PROGRAM PICTURE.

PROGRAM is `cutover`. DuckDB counts the rows of the table's newest version again and again, while the program replaces all of
them by others. Each count is a point; the picture is an SVG. Needs the readers' environment (tests/run.sh).
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "readers"))
import read  # noqa: E402

OLD, NEW = 400_000, 600_000
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 260, 90, 30, 40, 40
CONFIG = """config_version = 1
[pipelines.shop.source.files]
path = "feed"
[pipelines.shop.views.orders]
key = ["id"]
columns = { id = "bigint", item = "string", amount = "double" }
[pipelines.shop.views.orders.connectors.lake.delta]
uri = "orders"
"""


def land(home: pathlib.Path, step: int, rows: int) -> None:
    feed = home / "feed" / "orders"
    feed.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"id": n, "item": f"item {n * 7919 % 1000}", "amount": n * step / 8}) for n in range(rows))
    (feed / f"snapshot-{step}.ndjson").write_text("\n".join(lines) + "\n")


class Reader(threading.Thread):
    """Counts the table's rows until it is stopped; `seen` has the seconds at which each count was there."""

    def __init__(self, table: pathlib.Path) -> None:
        super().__init__()
        self.table, self.seen, self.stopped = table, [], threading.Event()

    def run(self) -> None:
        db = read.duckdb_connection()
        while not self.stopped.is_set():
            rows = db.execute(f"SELECT count(*) FROM delta_scan('{self.table}')").fetchone()[0]
            self.seen.append((time.monotonic(), rows))

    def reads(self, more: int) -> None:
        """Waits until it has read so often again."""
        wanted = len(self.seen) + more
        while len(self.seen) < wanted and self.is_alive():
            self.stopped.wait(0.001)


def observe(program: str, home: pathlib.Path) -> tuple[list[tuple[float, int]], float, float]:
    """The counts, and when the reset began and ended, in seconds since the first count."""
    def run(*args: str) -> None:
        subprocess.run([program, *args], cwd=home, check=True, capture_output=True)

    (home / "cutover.toml").write_text(CONFIG)
    land(home, 10, OLD)
    run("run", "--once")
    land(home, 20, NEW)
    reader = Reader(home / "orders")
    reader.start()
    reader.reads(20)
    begun = time.monotonic()
    run("reset", "lake", "--yes", "--reason", "a picture")
    ended = time.monotonic()
    reader.reads(20)
    reader.stopped.set()
    reader.join()
    first = reader.seen[0][0]
    return [(at - first, rows) for at, rows in reader.seen], begun - first, ended - first


def draw(seen: list[tuple[float, int]], begun: float, ended: float) -> str:
    total = seen[-1][0]
    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / total
    def y(rows: int) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rows / (NEW * 1.15)
    axis = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rows):.1f}" y2="{y(rows):.1f}" class="grid"/>'
        f'<text x="{LEFT - 8}" y="{y(rows) + 4:.1f}" text-anchor="end">{rows:,}</text>'
        for rows in (0, OLD, NEW)
    )
    points = "".join(f'<circle cx="{x(at):.1f}" cy="{y(rows):.1f}" r="2"/>' for at, rows in seen)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">
<title>Rows that DuckDB counted in {len(seen)} reads: {OLD:,} until the reload's version, {NEW:,} from it on, nothing else</title>
<style>text {{ font: 12px system-ui, sans-serif; fill: #4a5568 }} .grid {{ stroke: #d8dee9 }} circle {{ fill: #1f6feb }}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
<rect x="{x(begun):.1f}" y="{TOP}" width="{x(ended) - x(begun):.1f}" height="{HEIGHT - TOP - BOTTOM}" fill="#f3e8d2"/>
<text x="{(x(begun) + x(ended)) / 2:.1f}" y="{TOP - 10}" text-anchor="middle">cutover reset, {ended - begun:.1f} s</text>
{axis}
{points}
<text x="{LEFT}" y="{HEIGHT - 12}">rows of the newest version, each point one count by DuckDB; {len(seen)} in {total:.1f} s</text>
</svg>
"""


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, picture = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory() as home:
        seen, begun, ended = observe(str(program), pathlib.Path(home))
    counts = [rows for number, (_, rows) in enumerate(seen) if number == 0 or seen[number - 1][1] != rows]
    if counts != [OLD, NEW]:
        sys.exit(f"the reader saw {counts}")
    pathlib.Path(picture).write_text(draw(seen, begun, ended), encoding="utf-8")


if __name__ == "__main__":
    main()
