"""A sandbox and all that is done in it, by the synchronous half."""

import os
import tarfile
from datetime import datetime, timedelta, timezone

import pytest
from support import check, until

from sandgate import CommandFailed, CommandTimedOut, Sandbox, errors, records


@pytest.fixture(scope="module")
def sandbox():
    command = ["sh", "-c", "echo begun; echo bad >&2; exec httpd -f -p 8080 -h /www"]
    with Sandbox.create("default", labels={"kind": "shared"}, command=command) as made:
        yield made


def test_is_made_found_listed_extended_and_stopped():
    states = []
    labels = {"kind": "sync"}
    with Sandbox.create(
        "default",
        name="of-python",
        labels=labels,
        ttl_seconds=900,
        on_progress=lambda record: states.append(record.state),
    ) as made:
        assert made.state == "ready" and states[-1] == "ready"
        assert isinstance(made.record, records.SandboxRecord)
        assert isinstance(made.record.timeline[0], records.TimelineEntry)
        assert Sandbox.connect("of-python").id == made.id
        assert [found.id for found in Sandbox.list(labels=labels, state=["ready", "stopped"])] == [made.id]
        before = made.record.expires_at
        assert made.extend(1800).expires_at > before
    assert Sandbox.connect(made.id).state in ("stopping", "stopped")
    missing = pytest.raises(errors.SandboxNotFound, Sandbox.connect, "no-such-sandbox").value
    assert missing.status == 404 and missing.request_id and missing.hint and not missing.retryable


def test_runs_commands(sandbox):
    seen = []
    result = sandbox.commands.run(
        'echo "$A in $PWD"; cat; echo bad >&2; exit 3',
        cwd="/tmp",
        env={"A": "ä"},
        stdin="typed",
        on_stdout=seen.append,
    )
    assert (result.stdout, result.stderr, result.exit_code) == ("ä in /tmp\ntyped", "bad\n", 3)
    assert "".join(seen) == result.stdout and result.lost_bytes == 0
    failed = pytest.raises(CommandFailed, sandbox.commands.run, ["sh", "-c", "echo out; exit 7"], check=True).value
    assert (failed.exit_code, failed.stdout, failed.code) == (7, "out\n", "command_failed")
    slow = pytest.raises(CommandTimedOut, sandbox.commands.run, "echo begun; sleep 1000", timeout_ms=1000).value
    assert slow.stdout == "begun\n" and isinstance(slow, CommandFailed)
    with pytest.raises(KeyError):
        sandbox.commands.run("echo x; exec sleep 1001", on_stdout=lambda _: {}["missing"])
    assert sandbox.commands.list(state="running") == []


def test_takes_a_long_input_and_output(sandbox):
    assert len(sandbox.commands.run("head -c 20000000 /dev/zero | tr '\\0' x").stdout) == 20_000_000
    long = os.urandom(600_000)
    assert sandbox.commands.run("wc -c", stdin=long).stdout.strip() == "600000"
    # What no longer reads is of no interest.
    assert sandbox.commands.run("head -c 5", stdin=b"first" + long).stdout == "first"


def test_starts_processes(sandbox):
    process = sandbox.commands.start(["cat"], stdin_open=True, tag="echo")
    process.write("typed")
    process.close_stdin()
    assert "".join(chunk.data for chunk in process.output) == "typed"
    assert process.wait().exit_code == 0
    again = sandbox.commands.connect(process.id)
    assert [chunk.data for chunk in again.follow(after=2)] == ["ped"]
    assert [(chunk.data, chunk.offset) for chunk in again.follow_bytes(after=3)] == [(b"ed", 5)]
    assert [found.id for found in sandbox.commands.list(tag="echo")] == [process.id]
    sleeper = sandbox.commands.start("exec sleep 1002")
    pytest.raises(errors.TimedOut, sleeper.wait, timeout_ms=500)
    sleeper.kill()
    assert sleeper.wait().signal == "SIGTERM"


def test_a_terminal_shows_what_is_typed_and_has_its_size(sandbox):
    shown = []
    terminal = sandbox.pty.create(cols=100, rows=30, on_data=shown.append)
    terminal.write("stty size\n")
    until(lambda: check(b"30 100" in b"".join(shown)))
    terminal.resize(90, 20)
    terminal.write("stty size\n")
    until(lambda: check(b"20 90" in b"".join(shown)))
    again = []
    second = sandbox.pty.connect(terminal.id, on_data=again.append)
    until(lambda: check(b"30 100" in b"".join(again)))
    # Both type, each byte once and in order.
    terminal.write("echo on")
    second.write("ce\n")
    until(lambda: check(b"\nonce\r\n" in b"".join(shown)))
    pytest.raises(errors.TimedOut, terminal.wait, timeout_ms=300)
    second.write("exit 4\n")
    assert terminal.wait().exit_code == second.wait().exit_code == 4
    assert b"".join(shown) == b"".join(again) and terminal.offset == len(b"".join(shown))


def test_a_closed_terminal_tells_no_more_and_runs_on(sandbox):
    shown = []
    terminal = sandbox.pty.create(command=["cat"], on_data=shown.append)
    terminal.close()
    terminal.write("unseen\n")
    until(lambda: check(terminal.process.refresh().output_bytes >= len("unseen\n")))
    assert shown == []
    terminal.kill()
    assert terminal.process.wait().signal


def test_what_on_data_raises_is_told(sandbox):
    terminal = sandbox.pty.create(command="echo shown; sleep 1000", on_data=lambda _: {}["missing"])
    pytest.raises(KeyError, terminal.wait)
    terminal.kill()


def test_files(sandbox, tmp_path):
    files = sandbox.files
    files.write("/tmp/f/a.txt", "text", parents=True, mode=0o600)
    stat = files.stat("/tmp/f/a.txt")
    assert (stat.mode, stat.size, stat.path_base64) == ("0600", 4, None) and stat.etag
    data = os.urandom(700_000)
    files.write("/tmp/f/b.bin", data)
    assert files.read("/tmp/f/b.bin", format="bytes") == data
    assert files.read("/tmp/f/b.bin", format="bytes", offset=10, length=5) == data[10:15]
    assert b"".join(files.read("/tmp/f/b.bin", format="stream")) == data
    assert files.read("/tmp/f/a.txt") == "text"
    files.write("/tmp/f/c.bin", (data[at : at + 1000] for at in range(0, len(data), 1000)))
    assert files.download("/tmp/f/c.bin", tmp_path / "c.bin") == len(data)
    assert (tmp_path / "c.bin").read_bytes() == data
    with (tmp_path / "c.bin").open("rb") as file:
        assert files.write("/tmp/f/d.bin", file).size == len(data)
    assert files.upload(tmp_path / "c.bin", "/tmp/f/e.bin", mode="0755").mode == "0755"
    assert [entry.name for entry in files.list("/tmp/f")] == ["a.txt", "b.bin", "c.bin", "d.bin", "e.bin"]
    pytest.raises(errors.Conflict, files.write, "/tmp/f/a.txt", "other", is_new=True)
    pytest.raises(errors.Conflict, files.write, "/tmp/f/a.txt", "other", if_match='"old"')
    files.rename("/tmp/f/a.txt", "/tmp/f/g.txt")
    assert files.chmod("/tmp/f/g.txt", "0640").mode == "0640"
    files.make_dir("/tmp/f/d/e", parents=True)
    assert files.exists("/tmp/f/d/e") and not files.exists("/tmp/f/a.txt")
    files.remove("/tmp/f", recursive=True)
    assert not files.exists("/tmp/f")
    pytest.raises(errors.NotFound, files.download, "/tmp/f", tmp_path / "none")
    assert [each.name for each in tmp_path.iterdir()] == ["c.bin"]


def test_folders_are_uploaded_and_downloaded(sandbox, tmp_path):
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "run.sh").write_text("echo run")
    (source / "run.sh").chmod(0o755)
    (source / "sub" / "ä.txt").write_text("text")
    (source / "sub" / "link").symlink_to("ä.txt")
    sandbox.files.upload(source, "/tmp/folder")
    assert sandbox.commands.run("/tmp/folder/run.sh; cat link; stat -c %u .", cwd="/tmp/folder/sub").stdout == (
        "run\ntext" + sandbox.commands.run(["id", "-u"]).stdout
    )
    with pytest.warns(UserWarning, match="link was not downloaded"):
        assert sandbox.files.download("/tmp/folder", tmp_path / "target") == len("echo run") + len("text")
    found = sorted(each.relative_to(tmp_path / "target").as_posix() for each in (tmp_path / "target").rglob("*"))
    assert found == ["run.sh", "sub", "sub/empty", "sub/ä.txt"]
    assert (tmp_path / "target" / "run.sh").stat().st_mode & 0o777 == 0o755


def test_archives(sandbox, tmp_path):
    sandbox.files.write("/tmp/packed/a.txt", "text", parents=True)
    (tmp_path / "a.tar").write_bytes(b"".join(sandbox.files.read_archive("/tmp/packed")))
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert "a.txt" in [os.path.basename(name) for name in archive.getnames()]
    sandbox.files.make_dir("/tmp/unpacked")
    with (tmp_path / "a.tar").open("rb") as file:
        sandbox.files.write_archive("/tmp/unpacked", file)
    assert [entry.name for entry in sandbox.files.list("/tmp/unpacked", depth=5) if entry.type == "file"] == ["a.txt"]


def test_a_watch_tells_of_changes_until_it_is_stopped(sandbox):
    sandbox.files.make_dir("/tmp/watched")
    seen = []
    watch = sandbox.files.watch("/tmp/watched", lambda change: seen.append((change.type, change.path, change.to)))
    sandbox.files.write("/tmp/watched/a", "1")
    sandbox.files.rename("/tmp/watched/a", "/tmp/watched/b")
    sandbox.files.remove("/tmp/watched/b")
    until(lambda: check(("delete", "/tmp/watched/b", None) in seen))
    assert ("move", "/tmp/watched/a", "/tmp/watched/b") in seen
    watch.stop()
    # It is cut off at once, with no event to wake it.
    watch.wait(timeout_ms=5_000)
    count = len(seen)
    sandbox.files.write("/tmp/watched/late", "1")
    assert len(seen) == count
    pytest.raises(errors.NotFound, sandbox.files.watch, "/tmp/missing", seen.append)


def test_what_on_event_raises_is_told(sandbox):
    sandbox.files.make_dir("/tmp/failing")
    watch = sandbox.files.watch("/tmp/failing", lambda _: {}["missing"])
    sandbox.files.write("/tmp/failing/a", "1")
    pytest.raises(KeyError, watch.wait)
    pytest.raises(KeyError, watch.stop)


def test_ports(sandbox):
    sandbox.files.write("/tmp/site/index.html", "hello", parents=True)
    server = sandbox.commands.start(["httpd", "-f", "-p", "127.0.0.1:3000", "-h", "/tmp/site"])

    def listens():
        found = [each for each in sandbox.ports.listening() if each.port == 3000]
        assert [(each.address, each.process_id) for each in found] == [("127.0.0.1", server.id)]

    until(listens)
    assert sandbox.fetch(3000, "/index.html").text == "hello"
    assert sandbox.fetch(3000, "missing", params={"a": "b"}).status_code == 404
    preview = sandbox.ports.open(3000, ttl_seconds=600)
    assert preview.url and preview.token
    assert [each.id for each in sandbox.ports.list()] == [preview.id] == [sandbox.ports.get(preview.id).id]
    assert "sandgate_link=" in sandbox.ports.link(preview.id).url
    sandbox.ports.close(preview.id)
    assert sandbox.ports.list() == []
    server.kill()


def test_logs_and_metrics(sandbox):
    # Which of two streams comes first is nobody's promise.
    until(lambda: check(sorted(entry.log for entry in sandbox.logs()) == ["bad", "begun"]))
    assert [entry.log for entry in sandbox.logs(stream="stderr", limit=1)] == ["bad"]
    assert sandbox.logs(until=datetime.now(timezone.utc) - timedelta(days=1), since="2026-01-01T00:00:00Z") == []
    until(lambda: check(len(sandbox.metrics()) > 0))
    assert sandbox.metrics()[0].memory_usage > 0


def test_followed_logs_end_with_the_sandbox():
    lines = "trap exit TERM; httpd -p 8080 -h /www; for i in $(seq 1 40); do echo line $i; sleep 0.1; done; sleep 3600 & wait"
    sandbox = Sandbox.create("default", command=["sh", "-c", lines])
    seen = []
    for entry in sandbox.logs(follow=True):
        seen.append(entry.log)
        if entry.log == "line 20":
            sandbox.stop()
    assert seen == [f"line {i + 1}" for i in range(len(seen))] and len(seen) >= 20


def test_followed_metrics_come_as_they_are_taken(sandbox):
    for point in sandbox.metrics(follow=True):
        assert point.memory_usage > 0
        break
