"""SQL over stores and logs: every query gives the rows of the eager read, and reads only what it needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from logdex.errors import CorruptFileError, DamageWarning, LogdexError
from logdex.kafka import Log, LogDir
from logdex.pushdown import Rows
from logdex.rocketmq import IndexService, MessageStore, StoreWriter
from process_counts import bytes_read

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")
sql = pytest.importorskip("logdex.duckdb")

if TYPE_CHECKING:
    from pathlib import Path


def of_messages(rows: list[dict[str, Any]]) -> list[str]:
    """Return conditions on every column that reaches the read, and some that do not."""
    row, other = rows[len(rows) // 2], rows[len(rows) // 4]
    keyed = next((each for each in rows if each["keys"]), {"keys": "nobody's"})
    single = next((each for each in rows if each["uniq_key"] and each["tags"]), {"uniq_key": "X", "tags": "T"})
    time, earlier = (f"TIMESTAMPTZ '{each['store_timestamp'].isoformat()}'" for each in (row, other))

    def text(value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    topic, second = text(row["topic"]), text(other["topic"])
    return [
        f"topic = {topic}",
        f"{topic} = topic",
        f"topic = {topic} AND topic = 'nobody''s'",
        f"topic IN ({topic}, {second})",
        f"topic IN ({topic}, NULL)",
        f"NOT (topic = {topic})",
        f"topic = {topic} OR queue_id = 0",
        f"topic LIKE {text(row['topic'][:2] + '%')}",
        f"queue_id = {row['queue_id']}",
        "queue_id IN (0, 1)",
        "queue_id = -1",
        "queue_id < 1.5",
        f"store_timestamp >= {time}",
        f"{time} >= store_timestamp",
        f"store_timestamp BETWEEN {earlier} AND {time}",
        f"store_timestamp > {time} - INTERVAL 1 microsecond AND store_timestamp < {time} + INTERVAL 1 microsecond",
        "epoch_ms(store_timestamp) > 0",
        f"phy_offset < {row['phy_offset']}",
        f"phy_offset = {row['phy_offset']}",
        f"phy_offset >= {(1 << 63) - 1}",
        f"phy_offset IN ({row['phy_offset']}, {other['phy_offset']})",
        f"phy_offset > {other['phy_offset']} AND phy_offset <= {row['phy_offset']}",
        "phy_offset > -5",
        f"uniq_key = {text(single['uniq_key'])}",
        f"keys = {text(keyed['keys'])}",
        f"keys IN ({text(keyed['keys'])}, 'nobody')",
        f"keys = {text(keyed['keys'])} AND uniq_key = {text(single['uniq_key'])}",
        "keys = ''",
        "keys IS NULL",
        f"tags = {text(single['tags'])}",
        "contains(tags, 'A')",
        "octet_length(body) > 20",
        "properties['KEYS'] IS NOT NULL",
    ]


def of_records(rows: list[dict[str, Any]]) -> list[str]:
    row = rows[len(rows) // 2]
    keyed = next((each for each in rows if each["key"]), row)
    key = "from_hex('" + (keyed["key"] or b"").hex() + "')"
    time = f"TIMESTAMPTZ '{row['timestamp'].isoformat()}'"
    return [
        f"topic = '{row['topic']}'",
        f"topic = '{row['topic']}' AND partition = {row['partition']}",
        "partition IN (0, 7)",
        "partition = -1",
        f'"offset" >= {row["offset"]}',
        '"offset" BETWEEN 1 AND 3',
        '"offset" < 0',
        f"timestamp >= {time}",
        f"timestamp < {time}",
        f"key = {key}",
        f"key IN ({key}, 'nobody'::BLOB)",
        "key IS NULL",
        "octet_length(value) > 5",
        "len(headers) > 0",
    ]


def compare(lazy: Any, eager: Any, name: str, conditions: list[str]) -> int:
    """Compare each query with the same on the eager read; return the number of rows compared."""
    compared, known = 0, duckdb.connect()
    known.register(name, eager)
    for condition in conditions:
        for columns in ("*", "topic", "count(*)"):
            query = f"SELECT {columns} FROM {name} WHERE {condition}"
            assert lazy.sql(query).to_arrow_table() == known.sql(query).to_arrow_table(), query
        compared += known.sql(f"FROM {name} WHERE {condition}").shape[0]
    query = f"SELECT topic, count(*) FROM {name} GROUP BY topic ORDER BY topic"
    assert lazy.sql(query).fetchall() == known.sql(query).fetchall()
    # A table may be read several times in a query.
    query = f"SELECT count(*) FROM {name} a JOIN {name} b ON a.topic = b.topic WHERE b.topic < 'm'"
    assert lazy.sql(query).fetchall() == known.sql(query).fetchall()
    assert lazy.sql(f"FROM {name} LIMIT 2").to_arrow_table().num_rows == 2
    return compared


@pytest.mark.filterwarnings("ignore::logdex.errors.UnknownTopicWarning")
@pytest.mark.parametrize("case", golden.STORES)
def test_queries_of_messages_are_those_of_the_eager_read(case: str, tmp_path: Path) -> None:
    with MessageStore.open(golden.unpack(case, tmp_path)) as store:
        eager = pa.table(store.messages().read_all())
        rows = eager.select(
            ["topic", "queue_id", "store_timestamp", "phy_offset", "uniq_key", "keys", "tags"]
        ).to_pylist()
        assert compare(sql.connect(store), eager, "messages", of_messages(rows)) > eager.num_rows


@pytest.mark.filterwarnings("ignore::logdex.errors.UnknownTopicWarning")
@pytest.mark.parametrize("case", ["codecs", "timestamps"])
def test_queries_of_records_are_those_of_the_eager_read(case: str, tmp_path: Path) -> None:
    root = golden_kafka.unpack(case, tmp_path / "logs")
    with LogDir.open(root) as logs:
        eager = pa.table(logs.records().read_all())
        assert compare(sql.connect(root), eager, "records", of_records(eager.to_pylist())) > eager.num_rows
        largest = max((logs.log(each.topic, each.partition) for each in logs.partitions()), key=lambda log: log.size)
        with Log.open(largest.path) as log:
            own = pa.table(log.records().read_all())
            assert compare(sql.connect(log), own, "records", of_records(own.to_pylist())) > own.num_rows


def reads_of(rows: Rows, query: str) -> list[dict[str, Any]]:
    with sql.Tables(rows, empty=True) as tables:
        tables.connection.execute("SET TimeZone = 'UTC'")
        assert tables.connection.sql(query).fetchall() in ([], [(0,)])
        return [options for options, _ in tables.reads]


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("topic = 't' AND queue_id = 0", {"topics": ["t"], "queue_id": 0}),
        ("topic IN ('t', 'u') AND topic <> 'u'", {"topics": ["t", "u"]}),
        ("store_timestamp BETWEEN '2026-01-01' AND '2026-01-01'", {"begin": 1_767_225_600_000, "end": 1_767_225_600_001}),
        ("TIMESTAMPTZ '2026-01-01' < store_timestamp", {"begin": 1_767_225_600_000}),
        ("phy_offset > 4 AND phy_offset <= 9", {"begin_phy_offset": 4, "end_phy_offset": 10}),
        ("keys = ' a b'", {"keys": ["a"]}),
        ("tags = keys", {}),
        ("tags = 'T' OR tags = body::VARCHAR", {}),
        ("properties['a'] = 'b'", {}),
    ],
)  # fmt: skip
def test_conditions_become_options_of_the_read(condition: str, options: dict[str, Any], tmp_path: Path) -> None:
    with MessageStore.open(golden.unpack("basic", tmp_path)) as store:
        (read,) = reads_of(Rows(store, {}), f"SELECT count(*) FROM messages WHERE {condition}")
        del read["columns"]
        assert read == options


def test_a_condition_in_an_unknown_form_is_not_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_metadata", lambda _: iter([("verse", "1"), ("end", "verse")]))
    with MessageStore.open(golden.unpack("basic", tmp_path)) as store:
        query = "SELECT DISTINCT topic FROM messages WHERE topic = 't'"
        assert reads_of(Rows(store, {}), query) == [{}]
        assert sql.connect(store).sql(query).fetchall() == [("t",)]


def test_queues_groups_and_index_are_tables(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    with MessageStore.open(root) as store:
        database = sql.connect(store)
        usage = [(each.topic, each.queue_id, each.messages, each.log_bytes) for each in store.usage("queue")]
        assert database.sql("FROM queues").fetchall() == usage
        assert store.index is not None
        entries = sum(map(len, store.index.files))
        assert database.sql("SELECT count(*), count(DISTINCT phy_offset) > 9 FROM index_entries").fetchall() == [
            (entries, True)
        ]
        query = "SELECT count(*) FROM index_entries SEMI JOIN messages USING (phy_offset)"
        assert database.sql(query).fetchall() == [(entries,)]
    with IndexService.open(root / "index") as index:
        assert sql.connect(index).sql("SELECT count(*) FROM index_entries").fetchall() == [(entries,)]
        with pytest.raises(duckdb.CatalogException, match="messages"):
            sql.connect(index).sql("FROM messages")


def test_positions_of_groups(tmp_path: Path) -> None:
    with LogDir.open(
        golden_kafka.unpack_archive(golden_kafka.ROOT.parent / "kafka-groups" / "logs.tar.xz", tmp_path / "logs")
    ) as logs:
        groups = [(g.group, g.topic, g.queue_id, g.offset, g.lag) for g in logs.groups()]
        query = 'SELECT "group", topic, queue_id, "offset", lag FROM groups'
        assert groups
        assert sql.connect(logs).sql(query).fetchall() == groups


def test_decoded_bodies_have_fields(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "store", file_size=1 << 20, hash_slots=9, max_entries=99) as writer:
        bodies = [b'{"user": {"id": "u%d"}, "total": %d}' % (at % 7, at) for at in range(100)]
        writer.put_messages({"topic": ["Orders"] * 100, "tags": ["A", "B"] * 50, "body": bodies})
    store = MessageStore.open(tmp_path / "store", hash_slots=9, max_entries=99)
    database = sql.connect(store, decode={"body": "json"})
    query = "SELECT sum(body.total) FROM messages WHERE body.user.id = 'u1' AND tags = 'B'"
    assert database.sql(query).fetchall() == [(sum(at for at in range(100) if at % 7 == 1 and at % 2),)]
    assert database.sql("SELECT count(*) FROM messages WHERE tags = 'B'").fetchall() == [(50,)]
    assert database.sql("SELECT count(*) FROM messages WHERE body_error IS NULL").fetchall() == [(100,)]


@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes by /proc")
def test_a_query_reads_the_files_of_its_conditions(tmp_path: Path) -> None:
    body, number = b"x" * 1_000, 6_000
    with StoreWriter.open(tmp_path / "store", file_size=1 << 20, hash_slots=9, max_entries=99) as writer:
        for topic, rows in (("Orders", number), ("Rare", 3)):
            writer.put_messages({"topic": [topic] * rows, "body": [body] * rows})
    with MessageStore.open(tmp_path / "store", access="pread", hash_slots=9, max_entries=99) as store:
        database = sql.connect(store, scan=False)
        at = database.sql("SELECT max(phy_offset) FROM messages").fetchall()[0][0]

        def cost(query: str, rows: int) -> int:
            assert len(database.sql(query).fetchall()) == rows
            return bytes_read(lambda: database.sql(query).fetchall())

        whole = cost("SELECT tags FROM messages", number + 3)
        assert whole > number * len(body)
        assert cost(f"SELECT topic FROM messages WHERE phy_offset >= {at}", 1) < whole / 4
        assert cost("SELECT queue_offset FROM messages WHERE topic = 'Rare'", 3) < whole / 4


def test_damage_is_raised_as_by_the_read(tmp_path: Path) -> None:
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    file = max(root.rglob("*.log"), key=lambda each: each.stat().st_size)
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    with pytest.raises(duckdb.Error, match=r"CorruptFileError.*\.log at byte 0"):
        sql.connect(root).sql("SELECT count(value) FROM records").fetchall()
    with LogDir.open(root) as logs:
        with pytest.raises(CorruptFileError, match="log at byte 0"), sql.Tables(Rows(logs, {})) as tables:
            tables.connection.sql("SELECT count(value) FROM records").fetchall()
        with pytest.raises(LogdexError, match=r"valeu.*value"), sql.Tables(Rows(logs, {})) as tables:
            tables.connection.sql("SELECT valeu FROM records")
    with pytest.warns(DamageWarning):
        found = sql.connect(root, on_error="skip").sql("SELECT count(value) > 0 FROM records").fetchall()
    assert found == [(True,)]


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    store = golden.unpack("basic", tmp_path)
    with pytest.raises(TypeError, match="columns: expected no such option"):
        sql.connect(store, columns=["topic"])
    with pytest.raises(TypeError, match="nonsense"):
        sql.connect(store, nonsense=1)
    with pytest.raises(FileNotFoundError):
        sql.connect(tmp_path / "nowhere")
