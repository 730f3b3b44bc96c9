"""Sends raw bytes through the gate's tunnel and prints what comes back.

raw.py GATE TARGET CA [plain]: CONNECT to TARGET (host:port) at GATE, TLS with CA, then standard input as it is; with
`plain`, standard input goes to the gate itself. Reads until the peer closes or nothing more comes.
"""

import socket
import ssl
import sys

gate, target, ca = sys.argv[1:4]
request = sys.stdin.buffer.read()
host, port = gate.rsplit(":", 1)
link = socket.create_connection((host, int(port)), timeout=20)
if len(sys.argv) < 5:
    link.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = link.recv(4096)
        if not piece:
            sys.exit(f"no tunnel: {head!r}")
        head += piece
    if b" 200 " not in head.split(b"\r\n")[0]:
        sys.stdout.buffer.write(head)
        sys.exit(0)
    context = ssl.create_default_context(cafile=ca)
    link = context.wrap_socket(link, server_hostname=target.rsplit(":", 1)[0])
link.sendall(request)
link.settimeout(2)
try:
    while piece := link.recv(65536):
        sys.stdout.buffer.write(piece)
except (TimeoutError, ConnectionError, ssl.SSLError):
    pass
