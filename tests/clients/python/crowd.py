"""Many tunnels through the gate, or many names: prints `ready` when all are there, ends with its input.

    crowd.py idle COUNT HOST         COUNT open tunnels to HOST, each after a TLS handshake
    crowd.py idle2 COUNT HOST        the same with HTTP/2 agreed on, and its first frames exchanged
    crowd.py names COUNT SUFFIX      one handshake for each of n0.SUFFIX, n1.SUFFIX, ...
"""

import os
import resource
import socket
import ssl
import sys
import urllib.parse

mode, count, host = sys.argv[1], int(sys.argv[2]), sys.argv[3]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
gate = urllib.parse.urlsplit(os.environ["https_proxy"])
context = ssl.create_default_context()
if mode == "idle2":
    context.set_alpn_protocols(["h2"])


def tunnel(name):
    plain = socket.create_connection((gate.hostname, gate.port), timeout=60)
    plain.sendall(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        part = plain.recv(1)
        if not part:
            raise SystemExit(f"{name}: closed after {answer!r}")
        answer += part
    if not answer.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"{name}: {answer!r}")
    return context.wrap_socket(plain, server_hostname=name)


def tunnel2(name):
    tls = tunnel(name)
    if tls.selected_alpn_protocol() != "h2":
        raise SystemExit(f"{name}: HTTP/2 was not agreed on")
    settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
    kind = tls.recv(4)[3:4]
    if kind != bytes([4]):
        raise SystemExit(f"{name}: no SETTINGS but {kind!r}")
    return tls


if mode in ("idle", "idle2"):
    opened = {"idle": tunnel, "idle2": tunnel2}[mode]
    kept = [opened(host) for _ in range(count)]
else:
    kept = []
    for number in range(count):
        with tunnel(f"n{number}.{host}"):
            pass
print("ready", flush=True)
sys.stdin.read()
