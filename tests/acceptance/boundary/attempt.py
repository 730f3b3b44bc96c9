"""One attempt to get past the boundary, with plain sockets; prints one JSON line.

usage: attempt.py WHAT ADDRESS [PORT] [EXTRA]
outcome: "reached" (a peer answered or accepted), "sent" (no answer), "refused" (an error), "hung"
"""

import ctypes
import errno
import json
import os
import select
import socket
import struct
import sys
import time

PATIENCE = 5.0
ANSWER = 0.4
IPPROTO_MPTCP = 262
IPV6_FREEBIND = 78
TCP_FASTOPEN = 23
IP_FREEBIND = 15
IP_TRANSPARENT = 19


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def echo(sock):
    sock.sendall(b"attempt\n")
    sock.settimeout(PATIENCE)
    return "reached" if sock.recv(64) else "refused"


def tcp(address, port, protocol=0):
    sock = socket.socket(family(address), socket.SOCK_STREAM, protocol)
    sock.settimeout(PATIENCE)
    # Through getaddrinfo, which understands "fe80::1%wire".
    sock.connect(socket.getaddrinfo(address, int(port), proto=socket.IPPROTO_TCP)[0][4])
    return echo(sock)


def datagram(sock, data, to):
    sock.settimeout(ANSWER)
    # The second send hears what an ICMP error told the kernel about the first.
    for _ in range(2):
        sock.sendto(data, to)
        try:
            sock.recv(512)
            return "reached"
        except TimeoutError:
            pass
    return "sent"


def udp(address, port):
    return datagram(socket.socket(family(address), socket.SOCK_DGRAM), b"attempt\n", (address, int(port)))


def udplite(address, port):
    return datagram(socket.socket(family(address), socket.SOCK_DGRAM, 136), b"attempt\n", (address, int(port)))


def dns(address, port):
    query = b"\x70\x63\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05probe\x04test\x00\x00\x01\x00\x01"
    return datagram(socket.socket(family(address), socket.SOCK_DGRAM), query, (address, int(port)))


def ask(address, port):
    """As resolvers do: over a connected socket, which hears that nobody listens."""
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    sock.settimeout(PATIENCE)
    sock.connect((address, int(port)))
    sock.send(b"question")
    return "reached" if sock.recv(512) else "refused"


def ping(address, kind):
    six = ":" in address
    sock = socket.socket(family(address), kind, 58 if six else 1)
    body = struct.pack("!BBHHH", 128 if six else 8, 0, 0, 0x7063, 1)
    total = sum(struct.unpack("!4H", body))
    total = (total >> 16) + (total & 0xFFFF)
    body = body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
    # Connected, or an ICMP error is told to nobody.
    sock.connect((address, 0))
    sock.settimeout(ANSWER)
    for _ in range(2):
        sock.send(body)
        try:
            if sock.recv(512):
                return "reached"
        except TimeoutError:
            pass
    return "sent"


def icmp(address):
    return ping(address, socket.SOCK_DGRAM)


def raw(address):
    return ping(address, socket.SOCK_RAW)


def packet(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    ends = socket.inet_aton("192.0.2.1") + socket.inet_aton("192.0.2.2")
    head = struct.pack("!BBHHHBB", 0x45, 0, 28, 0, 0, 64, 17)
    total = sum(struct.unpack("!9H", head + ends))
    total = (total >> 16) + (total & 0xFFFF)
    head += struct.pack("!H", ~total & 0xFFFF) + ends
    sock.sendto(head + struct.pack("!4H", 443, 443, 8, 0), (interface, 0x0800, 0, 0, b"\xff" * 6))
    return "sent"


def mptcp(address, port):
    return tcp(address, port, IPPROTO_MPTCP)


def fastopen(address, port):
    sock = socket.socket(family(address), socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    sock.sendto(b"attempt\n", 0x20000000, (address, int(port)))
    return "reached" if sock.recv(64) else "refused"


def spoof(address, port, source, kind):
    """Sends with a source address that is not ours, so that a refusal would go there."""
    sock = socket.socket(family(address), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    if ":" in address:
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        try:
            # Without this the kernel binds to the address and then does not send from it.
            sock.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
        except PermissionError:
            pass
    sock.bind((source, 0))
    sock.settimeout(ANSWER)
    if kind == "tcp":
        try:
            sock.connect((address, int(port)))
        except TimeoutError:
            return "sent"
        return "reached"
    for _ in range(3):
        sock.sendto(b"attempt by proxy\n", (address, int(port)))
    return "sent"


def listen(address, port):
    """Serves one echo after another until stdin closes."""
    sock = socket.socket(family(address), socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, int(port)))
    sock.listen(16)
    print("listening", flush=True)
    open_now = [sys.stdin.fileno(), sock]
    while True:
        ready, _, _ = select.select(open_now, [], [])
        for one in ready:
            if one is sock:
                open_now.append(sock.accept()[0])
            elif one == sys.stdin.fileno():
                return "stopped"
            else:
                try:
                    data = one.recv(4096)
                    if data:
                        one.sendall(data)
                except OSError:
                    data = b""
                if not data:
                    open_now.remove(one)
                    one.close()


def crowd(address, port, count):
    """Dials that fill a listener's queue; whoever holds them keeps it full."""
    dials = []
    for _ in range(int(count)):
        dial = socket.socket(family(address), socket.SOCK_STREAM)
        dial.setblocking(False)
        dial.connect_ex((address, int(port)))
        dials.append(dial)
    return dials


def nobody(address, port, backlog, protocol=0, *full):
    """Listens with a queue that a dial or two fill (on older kernels none, with backlog 0), so that the
    kernel answers with SYN cookies, which have no socket. Reads what comes, answers and closes at
    once: what the rules kept back has no socket either from then on. `full`: where to dial oneself,
    and how often."""
    sock = socket.socket(family(address), socket.SOCK_STREAM, int(protocol))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, int(port)))
    if int(protocol) != IPPROTO_MPTCP:
        # Answers a Fast Open by a connection that nobody has accepted yet, where the host allows it.
        sock.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN, 16)
    sock.listen(int(backlog))
    own = crowd(*full) if full else []
    print("listening", flush=True)
    open_now = [sys.stdin, sock]
    while True:
        ready, _, _ = select.select(open_now, [], [])
        for one in ready:
            if one is sys.stdin:
                return "stopped, %d dials held" % len(own)
            if one is sock:
                open_now.append(sock.accept()[0])
                continue
            try:
                print("heard", one.recv(4096), flush=True)
                one.sendall(b"answer\n")
            except OSError:
                pass
            open_now.remove(one)
            one.close()


def knock(address, port, count, protocol=0):
    """Whether a handshake comes about at a listener whose queue is full already."""
    dials = crowd(address, port, count)
    sock = socket.socket(family(address), socket.SOCK_STREAM, int(protocol))
    sock.settimeout(PATIENCE)
    sock.connect((address, int(port)))
    sock.sendall(b"attempt\n")
    for dial in dials:
        dial.close()
    return "reached"


def hold(address, port, kind="tcp"):
    """Opens a flow, then uses it again when a line comes in."""
    sock = socket.socket(family(address), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    sock.settimeout(PATIENCE)
    sock.connect((address, int(port)))
    assert echo(sock) == "reached"
    print("open", flush=True)
    sys.stdin.readline()
    return echo(sock)


def active(address, port, own, other):
    """Opens a flow and asks in it, as FTP does, to be dialled at this address and port; stays until a line comes in."""
    sock = socket.socket(family(address), socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    sock.connect((address, int(port)))
    if ":" in own:
        line = "EPRT |2|%s|%s|\r\n" % (own, other)
    else:
        line = "PORT %s,%d,%d\r\n" % (own.replace(".", ","), int(other) >> 8, int(other) & 0xFF)
    # A helper knows where a line begins once it has seen one.
    for one in (b"NOOP\r\n", line.encode()):
        sock.sendall(one)
        assert sock.recv(100) == one
    print("asked", flush=True)
    sys.stdin.readline()
    return "reached"


def orphan(address, port):
    """Fills a flow whose peer does not read; when a line comes in, adds what fits and closes."""
    sock = socket.socket(family(address), socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    sock.connect((address, int(port)))
    sock.setblocking(False)
    quiet = 0
    while quiet < 10:
        try:
            sock.send(b"x" * 65536)
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.05)
    print("open", flush=True)
    sys.stdin.readline()
    try:
        sock.send(b"y" * 65536)
    except OSError:
        pass
    sock.close()
    return "sent"


def inherit(address, port, uid, kind):
    """Root or another user opens the socket, the agent uses it."""
    sock = socket.socket(family(address), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    os.setresgid(int(uid), int(uid), int(uid))
    os.setresuid(int(uid), int(uid), int(uid))
    if kind == "udp":
        return datagram(sock, b"attempt\n", (address, int(port)))
    sock.settimeout(PATIENCE)
    sock.connect((address, int(port)))
    return echo(sock)


def spin(*words):
    """Sends and dials as fast as it can, to each address in turn, until stdin closes."""
    addresses, port = words[:-1], int(words[-1])
    socks = {address: socket.socket(family(address), socket.SOCK_DGRAM) for address in addresses}
    print("spinning", flush=True)
    count = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        for address in addresses:
            try:
                socks[address].sendto(b"spin", (address, port))
            except OSError:
                pass
            dial = socket.socket(family(address), socket.SOCK_STREAM)
            dial.setblocking(False)
            dial.connect_ex((address, port))
            dial.close()
            count += 2
    print(count, flush=True)
    return "stopped"


def answer(address, port):
    """Answers datagrams until stdin closes."""
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    sock.bind((address, int(port)))
    print("listening", flush=True)
    while True:
        ready, _, _ = select.select([sys.stdin, sock], [], [])
        if sys.stdin in ready:
            return "stopped"
        data, who = sock.recvfrom(512)
        try:
            sock.sendto(data, who)
        except OSError:
            pass


def original(sock):
    """Where a redirected connection was meant to go."""
    if sock.family == socket.AF_INET6 and not sock.getsockname()[0].startswith("::ffff:"):
        raw = sock.getsockopt(socket.IPPROTO_IPV6, 80, 28)
        return "[%s]:%d" % (socket.inet_ntop(socket.AF_INET6, raw[8:24]), int.from_bytes(raw[2:4], "big"))
    raw = sock.getsockopt(socket.IPPROTO_IP, 80, 16)
    return "%s:%d" % (socket.inet_ntoa(raw[4:8]), int.from_bytes(raw[2:4], "big"))


def take(address, port):
    """Accepts redirected connections, echoes, and says where each was meant to go."""
    sock = socket.socket(family(address), socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, int(port)))
    sock.listen(16)
    print("listening", flush=True)
    while True:
        ready, _, _ = select.select([sys.stdin, sock], [], [])
        if sys.stdin in ready:
            return "stopped"
        client, _ = sock.accept()
        print("taken", original(client), flush=True)
        client.settimeout(PATIENCE)
        try:
            client.sendall(client.recv(4096))
        except OSError:
            pass
        client.close()


def stay(address, port):
    """Accepts one redirected connection after the other and echoes for as long as each asks."""
    sock = socket.socket(family(address), socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, int(port)))
    sock.listen(16)
    print("listening", flush=True)
    open_ones = []
    while True:
        ready, _, _ = select.select([sys.stdin, sock] + open_ones, [], [])
        if sys.stdin in ready:
            return "stopped"
        for client in ready:
            if client is sock:
                open_ones.append(sock.accept()[0])
                continue
            try:
                data = client.recv(4096)
                client.sendall(data)
            except OSError:
                data = b""
            if not data:
                open_ones.remove(client)
                client.close()


def udp_from(address, port, source_port):
    """A datagram from a port of our choice."""
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sock.bind(("::" if ":" in address else "0.0.0.0", int(source_port)))
    # Through getaddrinfo, which understands "ff02::1:2%wire".
    return datagram(sock, b"attempt\n", socket.getaddrinfo(address, int(port), proto=socket.IPPROTO_UDP)[0][4])


def hears(address, port, source_port):
    """Waits for an error about a flow from that port, over which nothing was sent."""
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    sock.bind(("::" if ":" in address else "0.0.0.0", int(source_port)))
    sock.connect((address, int(port)))
    sock.settimeout(PATIENCE)
    print("waits", flush=True)
    return "reached" if sock.recv(512) else "refused"


def unreachable(address, port, source, source_port):
    """Tells that host that nobody listens where its datagram went: from its port `source_port` to `source` and `port`."""
    six = ":" in address
    ends = [socket.inet_pton(family(address), one) for one in (address, source)]
    quoted = struct.pack("!4H", int(source_port), int(port), 16, 0) + b"datagram"
    if six:
        head = struct.pack("!IHBB", 6 << 28, len(quoted), 17, 64) + ends[0] + ends[1]
    else:
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(quoted), 0, 0, 64, 17, 0) + ends[0] + ends[1]
    body = struct.pack("!BBHI", 1 if six else 3, 4 if six else 3, 0, 0) + head + quoted
    if not six:
        total = sum(struct.unpack("!%dH" % (len(body) // 2), body))
        total = (total >> 16) + (total & 0xFFFF)
        total = (total >> 16) + (total & 0xFFFF)
        body = body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
    socket.socket(family(address), socket.SOCK_RAW, 58 if six else 1).sendto(body, (address, 0))
    return "sent"


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    began = time.monotonic()
    name = None
    try:
        outcome = globals()[what](*arguments)
    except TimeoutError:
        outcome = "hung"
    except OSError as error:
        outcome = "refused"
        name = errno.errorcode.get(error.errno, str(error))
    milliseconds = int((time.monotonic() - began) * 1000)
    print(json.dumps({"outcome": outcome, "errno": name, "ms": milliseconds, "uid": os.getuid()}), flush=True)


main()
