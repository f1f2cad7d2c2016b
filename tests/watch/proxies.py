"""nginx and Caddy, with the files of deploy/, in front of a real server: what clients see is what they would see without."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import threading
import time

from server import (
    DEPLOY, HOST, Administrator, answers, certificate, check, fetch, folder, free_port, isobar, running, tool, unsigned, wait_for,
)

# Where two clients come from; the proxy itself is at 127.0.0.1.
CLIENTS = ("127.0.0.2", "127.0.0.3")
# An event of a stream that comes later has waited in a buffer.
STREAM_SECONDS = 10
LARGEST = 5 << 20
# More than connections that a proxy keeps for later.
STREAMS = 40


def replaced(path, changes):
    """Returns a file of deploy/ with what stands for this try in the place of what an operator changes."""
    text = path.read_text()
    for old, new in changes.items():
        check(old in text, f"{path.name} says {old}")
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def nginx(work, backend, port):
    """Runs nginx with its file."""
    cert, key = certificate(work)
    site = replaced(DEPLOY / "nginx" / "isobar.conf", {
        "127.0.0.1:8080": f"127.0.0.1:{backend}", "listen 80;": f"listen 127.0.0.1:{free_port()};", "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/isobar/fullchain.pem": str(cert), "/etc/ssl/isobar/key.pem": str(key),
    })
    temporary = "".join(f"{kind}_temp_path {work}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.getuid() == 0 else ""
    (work / "nginx.conf").write_text(
        f"{user} daemon off; pid {work}/nginx.pid; events {{}}\nhttp {{ access_log off; {temporary} {site} }}\n"
    )
    with running([tool("usr", "sbin", "nginx"), "-p", work, "-e", work / "nginx.error", "-c", work / "nginx.conf"], work / "nginx.log") as process:
        wait_for("nginx serves", lambda: serves(process, work / "nginx.log", port))
        yield


@contextlib.contextmanager
def caddy(work, backend, port):
    """Runs Caddy with its file."""
    cert, key = certificate(work)
    site = replaced(DEPLOY / "caddy" / "Caddyfile", {
        "127.0.0.1:8080": f"127.0.0.1:{backend}", f"\n{HOST} {{": f"\nhttps://:{port} {{\n\tbind 127.0.0.1\n\ttls {cert} {key}",
    })
    (work / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site)
    command = [tool("usr", "bin", "caddy"), "run", "--config", work / "Caddyfile", "--adapter", "caddyfile"]
    home = {**os.environ, "HOME": str(work), "XDG_DATA_HOME": str(work), "XDG_CONFIG_HOME": str(work)}
    with running(command, work / "caddy.log", env=home) as process:
        wait_for("Caddy serves", lambda: serves(process, work / "caddy.log", port))
        yield


def serves(process, log, port):
    check(process.poll() is None, f"{log.name} starts: {log.read_text()}")
    return answers(port)


class Client:
    """A client at an address of its own."""

    def __init__(self, port, address):
        self.port, self.address = port, address

    def ask(self, method, path, body=None, headers=None):
        """Makes a request; returns the answer with its body read."""
        connection = self.connect()
        connection.request(method, path, body, {"host": HOST, **(headers or {})})
        answer = connection.getresponse()
        answer.text = answer.read()
        connection.close()
        return answer

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, source_address=(self.address, 0), context=unsigned())


def check_addresses(port):
    """Each client is counted by itself, whatever it says of itself."""
    def left(client, **said):
        headers = {name.replace("_", "-"): value for name, value in said.items()}
        return int(client.ask("GET", "/v2/about", headers=headers).headers["x-ratelimit-remaining"])

    one, other = (Client(port, address) for address in CLIENTS)
    first = left(one)
    check(left(other) == first, "two clients have two counts")
    forged = [{"x_forwarded_for": "198.51.100.1"}, {"forwarded": "for=198.51.100.1"}, {"x_forwarded_for": "127.0.0.1"},
              {"x_forwarded_for": "198.51.100.2", "forwarded": "for=198.51.100.3"}, {"x_real_ip": "198.51.100.4"}]
    counts = [left(one, **said) for said in forged]
    check(counts == list(range(first - 1, first - 1 - len(forged), -1)), f"nobody else's address is taken: {first}, {counts}")


def check_sign_in(port):
    """A session begins, and its cookie is for TLS alone."""
    wrong = json.dumps({"usernameOrEmail": "admin", "password": "wrong"})
    check(Client(port, CLIENTS[0]).ask("POST", "/v2/auth/login", wrong, {"content-type": "application/json"}).status == 401, "a wrong password is 401")
    right = json.dumps({"usernameOrEmail": "admin", "password": "wine-red-8"})
    answer = Client(port, CLIENTS[0]).ask("POST", "/v2/auth/login", right, {"content-type": "application/json"})
    check(answer.status == 201, f"a sign-in is 201: {answer.status}")
    cookie = answer.headers["set-cookie"]
    check("Secure" in cookie and "HttpOnly" in cookie, f"the cookie is secure: {cookie}")


def check_events(port, admin):
    """An event is acknowledged, a stream brings it while it is open, and a long poll is answered as soon as there is something."""
    project = admin.post("/v2/projects", {"name": "Fridges"}, wanted=201)
    device = admin.post("/v2/devices", {"name": "Fridge", "projectUuid": project["id"]}, wanted=201)
    token, client = {"cloud": device["token"]}, Client(port, CLIENTS[0])
    stream = client.connect()
    stream.request("GET", f"/v2/events/stream?deviceId={device['id']}", headers={"host": HOST, **admin.headers})
    opened = stream.getresponse()
    check(opened.status == 200 and opened.headers["content-type"].startswith("text/event-stream"), f"a stream opens: {opened.status}")
    for number in range(3):
        begin = time.monotonic()
        posted = client.ask("POST", "/v2/events/device?elementName=reading", json.dumps({"n": number}), {**token, "content-type": "application/json"})
        check(posted.status == 201, f"an event is 201: {posted.status} {posted.text}")
        identifier = json.loads(posted.text)["id"].encode()
        while identifier not in (line := opened.readline()):
            check(line, "the stream goes on")
        check(time.monotonic() - begin < STREAM_SECONDS, "the stream is not buffered")
    stream.close()
    check_long_poll(client, token, admin, device)


def check_streams_end(port, direct, admin):
    """A stream that its client has left ends at Isobar too."""
    def connections():
        text = fetch(direct, "GET", "/metrics")[2].decode()
        return int(re.search(r"^isobar_http_connections (\d+)", text, re.M)[1])

    before, streams = connections(), [Client(port, CLIENTS[0]).connect() for _ in range(STREAMS)]
    for stream in streams:
        stream.request("GET", "/v2/events/stream", headers={"host": HOST, **admin.headers})
        check(stream.getresponse().status == 200, "a stream opens")
    wait_for("streams are connections", lambda: connections() >= before + STREAMS / 2)
    for stream in streams:
        stream.close()
    wait_for("streams end with their clients", lambda: connections() < before + STREAMS / 2)


def check_long_poll(client, token, admin, device):
    answered = []
    poll = threading.Thread(target=lambda: answered.append(client.ask("GET", "/v2/events/cloud/next?wait=30", headers=token)))
    begin = time.monotonic()
    poll.start()
    while poll.is_alive() and not answered:
        admin.post(f"/v2/events/cloud?deviceId={device['id']}&elementName=light", {"on": True}, wanted=201)
        poll.join(1)
    poll.join()
    check(answered[0].status == 200 and json.loads(answered[0].text) == {"on": True}, f"a long poll brings what comes: {answered[0].status} {answered[0].text}")
    check(time.monotonic() - begin < STREAM_SECONDS, "at once")


def check_bodies(port, direct, admin):
    """What is large passes, and what is too large is refused in the same words as without the proxy."""
    client = Client(port, CLIENTS[0])
    headers = {**admin.headers, "content-type": "application/json"}
    items = json.dumps([{"name": f"Fridge {number} " + "x" * 300} for number in range(9_000)])
    check(2 << 20 < len(items) < LARGEST, "some MiB")
    bulk = client.ask("POST", "/v2/devices/bulk?test=true", items, headers)
    check(bulk.status == 200, f"a large body passes: {bulk.status} {bulk.text[:200]}")
    too_large = json.dumps({"name": "x" * (2 << 20)}).encode()
    there = client.ask("POST", "/v2/projects", too_large, headers)
    status, _, body = fetch(direct, "POST", "/v2/projects", too_large, headers)
    check((there.status, json.loads(there.text)) == (status, json.loads(body)) and status == 413, f"413 in the same words: {there.status} {there.text[:300]}")


def check_headers(port, admin):
    """What headers say arrives, HTTP/2 is spoken, and what watchers read is not the public's."""
    me = admin.get("/v2/auth/user")
    key = admin.post(f"/v2/users/{me['id']}/apiKeys", {"name": "proxy"}, wanted=201)["key"]
    client = Client(port, CLIENTS[0])
    check(client.ask("GET", "/v2/auth/user", headers={"api_auth_token": key}).status == 200, "api_auth_token arrives")
    check(client.ask("GET", "/metrics").status == 404, "metrics are not for everybody")
    spec = client.ask("GET", "/v2/spec", headers={"accept-encoding": "gzip"})
    check(spec.status == 200 and spec.headers["content-encoding"] == "gzip", "what Isobar compresses stays so")
    command = ["curl", "-sk", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", f"https://127.0.0.1:{port}/v2/about", "-H", f"host: {HOST}"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    check(said == "2 200", f"HTTP/2: {said}")


def main():
    for proxy in (nginx, caddy):
        with folder() as work:
            settings = {"ISOBAR_HTTP__TRUSTED_PROXIES": "127.0.0.1", "ISOBAR_PUBLIC_URL": f"https://{HOST}"}
            with isobar(work, **settings) as direct:
                port = free_port()
                with proxy(work, int(re.search(r"\d+$", direct)[0]), port):
                    check_addresses(port)
                    check_sign_in(port)
                    admin = Administrator(direct)
                    check_events(port, admin)
                    check_streams_end(port, direct, admin)
                    check_bodies(port, direct, admin)
                    check_headers(port, admin)
        print(f"{proxy.__name__} stands in front of Isobar")


main()
