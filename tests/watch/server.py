"""A real server for one part of the checks, and what the parts have in common."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = pathlib.Path(os.environ.get("WATCH_TOOLS", ""))
ISOBAR = os.environ["ISOBAR"]
PASSWORD = "wine-red-8"
# The name in our certificate.
HOST = "isobar.example.com"
# A server that does not come up within this many seconds never does.
PATIENCE = 60


def tool(*places):
    """Returns the path of an unpacked program."""
    return str(TOOLS.joinpath(*places))


def check(holds, what):
    """Ends the part with a sentence if something does not hold."""
    if not holds:
        raise SystemExit(f"does not hold: {what}")


def wait_for(what, state):
    """Waits until `state` returns something, and returns that."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := state():
            return found
        time.sleep(0.05)
    raise SystemExit(f"waited in vain: {what}")


def free_port():
    """Returns a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def answers(port):
    """Returns true if somebody listens on the port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def running(command, log, **more):
    """Runs a program as long as the block."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **more)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def folder():
    """Makes a folder as long as the block."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="isobar-watch-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def certificate(work):
    """Makes a certificate that nobody signs."""
    paths = work / "cert.pem", work / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST},IP:127.0.0.1"]
    subprocess.run([*command, *names, "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def unsigned():
    """Returns a context that takes our certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextlib.contextmanager
def isobar(work, **settings):
    """Runs Isobar on a new data folder, with HTTPS if the settings name a certificate; yields its address."""
    port = free_port()
    environment = {**os.environ, "ISOBAR_ADMIN_PASSWORD": PASSWORD, **settings}
    environment.pop("ISOBAR", None)
    command = [ISOBAR, "serve", "--listen", f"127.0.0.1:{port}", "--log", "info,json", "--data", str(work / "data")]
    with running(command, work / "isobar.log", env=environment) as process:
        scheme = "https" if "ISOBAR_HTTP__TLS_CERTIFICATE" in settings else "http"
        url = f"{scheme}://127.0.0.1:{port}"

        def ready():
            check(process.poll() is None, "the server starts: " + (work / "isobar.log").read_text())
            return answers(port) and fetch(url, "GET", "/health/ready")[0] == 200

        wait_for("the server is ready", ready)
        yield url


def fetch(url, method, path, body=None, headers=None):
    """Makes a request; returns status, headers and body."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    kind = {} if body is None else {"content-type": "application/json"}
    request = urllib.request.Request(url + path, data, {**kind, **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30, context=unsigned()) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.headers, refusal.read()


class Administrator:
    """The first user of a server."""

    def __init__(self, url):
        self.url, self.headers = url, {}
        answer = self.post("/v2/auth/login", {"usernameOrEmail": "admin", "password": PASSWORD}, wanted=201)
        self.headers = {"authorization": f"Bearer {answer['jwtToken']}"}

    def call(self, method, path, body=None, wanted=200, headers=None):
        status, _, answer = fetch(self.url, method, path, body, {**self.headers, **(headers or {})})
        check(status == wanted, f"{method} {path} is {wanted}: {status} {answer[:500]!r}")
        return json.loads(answer) if answer else None

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.call("POST", path, body, **more)


def metrics(url):
    """Returns the names of all samples that the server shows."""
    text = fetch(url, "GET", "/metrics")[2].decode()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.split("{")[0].split(" ")[0] for line in lines}
