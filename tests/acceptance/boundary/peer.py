"""The peer outside: echoes TCP, UDP and UDP-Lite on the given ports, IPv4 and IPv6.

Port 9 accepts and reads only after a line "read" comes in on stdin. Ends when stdin closes.
"""

import selectors
import socket
import sys

PORTS = [int(port) for port in sys.argv[1:]]
chosen = selectors.DefaultSelector()
sluggish = []


def accept(listener):
    connection, _ = listener.accept()
    connection.setblocking(False)
    if listener.getsockname()[1] == 9:
        sluggish.append(connection)
    else:
        chosen.register(connection, selectors.EVENT_READ, answer)


def answer(connection):
    try:
        data = connection.recv(65536)
        if data:
            connection.sendall(data)
    except OSError:
        data = b""
    if not data:
        chosen.unregister(connection)
        connection.close()


def swallow(connection):
    try:
        data = connection.recv(1 << 20)
    except OSError:
        data = b""
    if not data:
        chosen.unregister(connection)
        connection.close()


def back(sock):
    data, who = sock.recvfrom(65536)
    try:
        sock.sendto(data, who)
    except OSError:
        pass


for family, any_address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
    for port in PORTS + [9]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port == 9:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((any_address, port))
        listener.listen(64)
        chosen.register(listener, selectors.EVENT_READ, accept)
        for protocol in (0, 136):
            sock = socket.socket(family, socket.SOCK_DGRAM, protocol)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((any_address, port))
            chosen.register(sock, selectors.EVENT_READ, back)

chosen.register(sys.stdin, selectors.EVENT_READ, None)
print("ready", flush=True)
while True:
    for key, _ in chosen.select():
        if key.data is None:
            if sys.stdin.readline().strip() != "read":
                sys.exit(0)
            for connection in sluggish:
                chosen.register(connection, selectors.EVENT_READ, swallow)
            sluggish.clear()
        else:
            key.data(key.fileobj)
