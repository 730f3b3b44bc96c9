"""Plays a gate for `portcullis prove`: gate.py PREFIX WHAT...; says "ready" and answers until killed.

It forwards what it is asked to where the run's policy lists it, as a gate does, without WHAT it is told to be careless of:
headers, methods, pages, places, clear.
"""
import json, os, re, socket, sys, threading

PREFIX, CARELESS = sys.argv[1], set(sys.argv[2:])
RUN = os.path.join(PREFIX, "run/portcullis")
SECRET = ("authorization", "proxy-", "cookie", "private-token", "x-api-key", "csrf", "x-github-otp", "connection", "prove-")


def listen(path, serve):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(16)

    def run():
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=guarded, args=(serve, stream), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()


def guarded(serve, stream):
    with stream:
        try:
            head = b""
            while b"\r\n\r\n" not in head:
                more = stream.recv(4096)
                if not more:
                    return
                head += more
            head, rest = head.split(b"\r\n\r\n", 1)
            serve(stream, head.decode().split("\r\n"), rest)
        except OSError:
            pass


def answer(stream, code, body):
    body = body.encode()
    stream.sendall(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (code, len(body)) + body)


def control(stream, lines, body):
    method, path, _ = lines[0].split(" ")
    length = int(next((line.split(":")[1] for line in lines if line.lower().startswith("content-length:")), 0))
    while len(body) < length:
        body += stream.recv(65536)
    if method == "DELETE":
        return answer(stream, 200, "{}")
    policy = json.loads(body)["policy"]
    if "credential =" in policy and "clear" not in CARELESS:
        return answer(stream, 422, "prove: the credential would cross the network in the clear")
    places = dict(zip(re.findall(r'host = "([^"]+)"', policy), re.findall(r'address = "([^"]+)"', policy)))
    socket_path = os.path.join(RUN, "runs", os.path.basename(path), "gate.sock")
    listen(socket_path, lambda stream, lines, _: forward(stream, lines, places))
    answer(stream, 200, json.dumps({"socket": socket_path}))


def forward(stream, lines, places):
    method, url, _ = lines[0].split(" ")
    _, _, authority, path = url.split("/", 3)
    host, _, port = authority.partition(":")
    place = places.get(host)
    if place is None and "places" in CARELESS:
        place = "%s:%s" % (host, port or "80")
    if place is None:
        return answer(stream, 403, "not listed")
    if method != "GET" and "methods" not in CARELESS:
        return answer(stream, 405, "not this method")
    fields = lines[1:]
    if "headers" not in CARELESS:
        fields = [line for line in fields if not line.lower().startswith(SECRET)]
    host, port = place.rsplit(":", 1)
    try:
        upstream = socket.create_connection((host, int(port)), timeout=5)
    except OSError:
        asked = "\n".join([path] + fields) if "pages" in CARELESS else ""
        return answer(stream, 502, "the place is down\n" + asked)
    with upstream:
        upstream.sendall("\r\n".join(["%s /%s HTTP/1.1" % (method, path)] + fields + ["Connection: close", "", ""]).encode())
        while True:
            data = upstream.recv(4096)
            if not data:
                return
            stream.sendall(data)


listen(os.path.join(RUN, "proxy/control.sock"), control)
print("ready", flush=True)
threading.Event().wait()
