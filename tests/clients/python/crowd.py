"""Many tunnels through the gate, or many names: prints `ready` when all are there, ends with its input.

    crowd.py idle COUNT HOST         COUNT open tunnels to HOST, each after a TLS handshake
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


if mode == "idle":
    kept = [tunnel(host) for _ in range(count)]
else:
    kept = []
    for number in range(count):
        with tunnel(f"n{number}.{host}"):
            pass
print("ready", flush=True)
sys.stdin.read()
