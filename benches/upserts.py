"""Upserts of a keyed view, drawn by Zipf's law, and the program that delivers them from files. Imported by current.py."""

import json
import os
import pathlib
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SKEW = 0.99
SCATTER = 2_654_435_761  # a prime, so that it moves ranks to other keys one to one
PART = 1_000_000
NOTES = 1 << 18


def mixed(numbers):
    """Splitmix64's last steps."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


class Load:
    """The view: what a row holds follows from its key and the step that changed it last."""

    def __init__(self, keys, seed):
        self.keys, self.chance = keys, np.random.default_rng(seed)
        self.last = np.zeros(keys, np.int32)
        words = np.array("the of order late paid by customer parcel left with a neighbour call again soon".split())
        drawn = words[self.chance.integers(0, len(words), (NOTES, 5))]
        self.notes = pa.array([f"{n} {' '.join(row)}" for n, row in enumerate(drawn)])
        self.statuses = pa.array(["open", "paid", "packed", "sent", "returned"])

    def rows(self, ids, steps):
        drawn = mixed(ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + steps.astype(np.uint64))
        part = lambda shift, below: ((drawn >> np.uint64(shift)) % np.uint64(below)).astype(np.int64)  # noqa: E731
        cents = np.zeros((len(ids), 2), np.int64)
        cents[:, 0] = part(20, 10_000_000)
        return pa.table({
            "id": ids,
            "customer": part(4, 1_000_000),
            "status": self.statuses.take(pa.array(part(40, 5))),
            "amount": pa.Array.from_buffers(pa.decimal128(15, 2), len(ids), [None, pa.py_buffer(cents)]),
            "changed": pa.array(steps.astype(np.int64) * 1_000_000, pa.timestamp("us", "UTC")),
            "note": self.notes.take(pa.array(part(13, NOTES))),
        })

    def draw(self, count):
        ranks = np.empty(0, np.int64)
        while True:
            drawn = self.chance.random(2 * count) * (self.keys ** (1 - SKEW) - 1) + 1
            more = np.minimum(drawn ** (1 / (1 - SKEW)), self.keys).astype(np.int64) - 1
            ranks = np.concatenate([ranks, more])
            _, first = np.unique(ranks, return_index=True)
            ranks = ranks[np.sort(first)]
            if len(ranks) >= count:
                return ranks[:count] * SCATTER % self.keys

    def update(self, step, count):
        ids = self.draw(count)
        self.last[ids] = step
        return self.rows(ids, np.full(count, step))

    def parts(self):
        for start in range(0, self.keys, PART):
            ids = np.arange(start, min(start + PART, self.keys))
            yield self.rows(ids, self.last[ids])


def as_changes(rows, step):
    front = {"__step": np.full(len(rows), step), "__op": pa.repeat("u", len(rows))}
    return pa.table(front | {name: rows[name] for name in rows.column_names})


def write(rows, file):
    pq.write_table(rows, file, compression="zstd", compression_level=1, store_decimal_as_integer=True)
    return file.stat().st_size


def folder_bytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class Table:
    """A table's log, followed entry by entry."""

    def __init__(self, path):
        self.path, self.version, self.step, self.joins, self.live = path, -1, -1, 0, {}

    def follow(self):
        while True:
            entry = self.path / "_delta_log" / f"{self.version + 1:020}.json"
            if not entry.exists():
                return self
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            stamp = json.loads(actions[0]["commitInfo"]["userMetadata"])
            for action in actions:
                if remove := action.get("remove"):
                    self.live.pop(remove["path"], None)
            for action in actions:
                if add := action.get("add"):
                    self.live[add["path"]] = (add["size"], (add.get("deletionVector") or {}).get("cardinality", 0))
            self.version, self.step = self.version + 1, stamp["to"]
            self.joins += stamp["kind"] == "maintenance"

    def said(self):
        size, deleted = (sum(numbers) for numbers in zip(*self.live.values()))
        return f"{len(self.live)} live files of {size / 1e6:.1f} MB, {deleted} rows deleted in them, {self.joins} joins"


class Site:
    """A feed of one view, and a table of it in each of the layouts that are named."""

    def __init__(self, program, folder, load, *layouts):
        self.program, self.folder, self.load, self.process = program, folder, load, None
        self.step, self.landed_bytes, self.most_anonymous = 0, 0, 0
        self.views = folder / "feed" / "orders"
        self.views.mkdir(parents=True)
        text = '[server]\nlisten = "127.0.0.1:0"\ndata_dir = "data"\n'
        text += '[pipelines.p.source.files]\npath = "feed"\npoll_interval = "10ms"\n'
        text += '[pipelines.p.views.orders]\nkey = ["id"]\n'
        for name, layout in layouts:
            connector = f"pipelines.p.views.orders.connectors.{name}"
            text += f'[{connector}]\ncommit = {{ max_rows = 1 }}\ndurability = "none"\n'
            text += f'[{connector}.delta]\nuri = "{name}"\nlayout = "{layout}"\n'
        (folder / "cutover.toml").write_text("config_version = 1\n" + text)
        self.tables = {name: Table(folder / name) for name, _ in layouts}

    def land_snapshot(self, parts):
        hidden = self.views / ".snapshot"
        hidden.mkdir()
        for number, rows in enumerate(parts):
            write(rows, hidden / f"part-{number:05}.parquet")
        hidden.rename(self.views / "snapshot-0.parquet")

    def start(self):
        said = open(self.folder / "said", "a")
        self.process = subprocess.Popen([self.program, "run"], cwd=self.folder, stdout=said, stderr=said)

    def end(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
            self.process = None

    def of_process(self, file):
        return pathlib.Path(f"/proc/{self.process.pid}/{file}").read_text()

    def memory(self, field):
        line = next(line for line in self.of_process("status").splitlines() if line.startswith(field + ":"))
        return int(line.split()[1]) * 1024

    def cpu(self):
        # The name in parentheses may hold blanks.
        user, system = self.of_process("stat").rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def await_step(self, step):
        begun = seen = time.perf_counter()
        while any(table.follow().step < step for table in self.tables.values()):
            if (at := time.perf_counter()) - seen > 0.05:
                assert self.process.poll() is None, (self.folder / "said").read_text()
                self.most_anonymous, seen = max(self.most_anonymous, self.memory("RssAnon")), at
            time.sleep(0.0005)
        return time.perf_counter() - begun

    def rest(self):
        """Waits until the daemon does no more than look for files."""
        before, quiet = self.cpu(), 0
        while quiet < 3:
            time.sleep(0.1)
            used, before = self.cpu() - before, self.cpu()
            quiet = quiet + 1 if used <= 0.03 else 0

    def stage(self, rows, steps=1):
        """A file of changes, each row with its step, that is not landed yet."""
        begun = self.step
        self.step += steps
        hidden = self.views / f".changes-{begun}-{self.step}.parquet"
        self.landed_bytes += write(rows, hidden)
        return hidden

    def land(self, hidden):
        hidden.rename(hidden.with_name(hidden.name[1:]))

    def changes(self, count):
        rows = self.load.update(self.step + 1, count)
        return rows, as_changes(rows, self.step + 1)
