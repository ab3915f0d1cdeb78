"""Downloads against a server that cuts, stalls, lies and refuses."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given, strategies as st

from mtnet.datasets.download import CHUNK, download
from mtnet.errors import InputError

PAYLOAD = bytes(i * i % 251 for i in range(3 * CHUNK + 17))
MD5 = hashlib.md5(PAYLOAD).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Follows a script, one word a request: see `Server`."""

    def do_GET(self):
        server, asked = self.server, self.headers["Range"]
        server.asked.append(asked)
        what, value = server.script.pop(0) if server.script else ("whole", None)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if what == "status":
            return self.send_error(value)
        if what == "stall":
            return server.over.wait(10)
        if what == "hang up":
            return None
        payload = value if what == "wrong" else PAYLOAD
        if start >= len(payload):
            return self.send_error(416)
        if what == "no ranges":
            start = 0
        shift = 1 if what == "another part" else 0
        self.send_response(206 if start else 200)
        if start:
            given = f"bytes {start + shift}-{len(payload) - 1}/{len(payload)}"
            self.send_header("Content-Range", given)
        if what != "no length":
            self.send_header("Content-Length", str(len(payload) - start))
        self.end_headers()
        until = value if what in ("cut", "no ranges") else None
        self.wfile.write(payload[start:until])
        return None

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    """`script` says what the next requests get; `asked` is the Range of all so far."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/file.zip"
        self.follow()

    def follow(self, *script):
        self.script, self.asked = list(script), []


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def fetch(url, target, md5=MD5, **other):
    download(url, md5, target, **{"wait": 0.0, "timeout": 5.0} | other)
    assert target.read_bytes() == PAYLOAD
    assert not partly(target).exists()


def partly(target):
    return target.with_name(f"{target.name}.part")


@given(cuts=st.lists(st.integers(0, len(PAYLOAD)), max_size=4).map(sorted))
def test_wherever_it_is_cut_it_goes_on_there(server, tmp_path_factory, cuts):
    server.follow(*(("cut", cut) for cut in cuts))
    target = tmp_path_factory.mktemp("cut") / "file.zip"
    seen = []
    fetch(server.url, target, report=lambda done, total: seen.append((done, total)))
    whole = cuts.index(len(PAYLOAD)) if len(PAYLOAD) in cuts else len(cuts)
    assert server.asked == [None, *(f"bytes={c}-" if c else None for c in cuts[:whole])]
    assert seen == sorted(seen)
    assert seen[-1] == (len(PAYLOAD), len(PAYLOAD))


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server, tmp_path):
    server.follow(("cut", 1000), *[("hang up", None)] * 4)
    with pytest.raises(InputError, match=r"cannot download .* .it resumes"):
        fetch(server.url, tmp_path / "f")
    assert partly(tmp_path / "f").stat().st_size == 1000
    server.follow()
    fetch(server.url, tmp_path / "f")
    assert server.asked == ["bytes=1000-"]


def test_a_whole_file_is_not_fetched_again(server, tmp_path):
    (tmp_path / "f").write_bytes(PAYLOAD)
    server.follow()
    fetch(server.url, tmp_path / "f")
    assert server.asked == []


def test_a_whole_part_only_wants_its_name(server, tmp_path):
    partly(tmp_path / "f").write_bytes(PAYLOAD)
    server.follow()
    fetch(server.url, tmp_path / "f")
    assert server.asked == [f"bytes={len(PAYLOAD)}-"]


def test_a_damaged_file_is_fetched_again(server, tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    fetch(server.url, tmp_path / "f")


@pytest.mark.parametrize(
    "script",
    [
        [("cut", 5000), ("no ranges", None)],
        [("cut", 5000), ("no ranges", 70_000), ("no ranges", None)],
        [("cut", 5000), ("another part", None)],
        [("no length", None)],
        [("status", 503), ("status", 429), ("cut", 9)],
        [("hang up", None), ("stall", None)],
    ],
    ids=lambda script: ", ".join(what for what, _ in script),
)
def test_an_odd_server_is_put_up_with(script, server, tmp_path):
    server.follow(*script)
    fetch(server.url, tmp_path / "f", timeout=0.5)


def test_a_server_that_always_cuts_at_one_place_is_given_up(server, tmp_path):
    server.follow(*[("no ranges", 5000)] * 50)
    with pytest.raises(InputError, match="connection was cut"):
        fetch(server.url, tmp_path / "f")
    assert len(server.asked) == 5


def test_wrong_bytes_are_removed(server, tmp_path):
    server.follow(("wrong", PAYLOAD[:-1] + b"x"))
    with pytest.raises(InputError, match=r"checksum mismatch.*deleted"):
        fetch(server.url, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_file_is_removed(server, tmp_path):
    partly(tmp_path / "f").write_bytes(b"other" * 10**6)
    server.follow()
    with pytest.raises(InputError, match="checksum mismatch"):
        fetch(server.url, tmp_path / "f")
    fetch(server.url, tmp_path / "f")


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (500, 4)])
def test_a_refusal_is_passed_on(status, requests, server, tmp_path):
    server.follow(*[("status", status)] * 9)
    with pytest.raises(InputError, match=f"cannot download .*{status}.* --from"):
        fetch(server.url, tmp_path / "f")
    assert len(server.asked) == requests
    assert list(tmp_path.iterdir()) == []


def test_nobody_there_is_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/f"
    with pytest.raises(InputError, match="Connection refused"):
        fetch(url, tmp_path / "f")


def test_silence_is_given_up(server, tmp_path):
    server.follow(*[("stall", None)] * 2)
    with pytest.raises(InputError, match="timed out"):
        fetch(server.url, tmp_path / "f", tries=2, timeout=0.1)


def test_a_full_disk_is_said(server, tmp_path):
    partly(tmp_path / "f").symlink_to("/dev/full")
    server.follow()
    with pytest.raises(InputError, match="No space left on device"):
        fetch(server.url, tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_folder_that_cannot_be_made_is_said(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write"):
        fetch(server.url, tmp_path / "file" / "f")
