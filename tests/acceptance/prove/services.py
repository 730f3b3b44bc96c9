"""Plays the services that resolve names: services.py [late] WHICH; says "ready" and answers until killed. Late: takes a
question of anybody but root, and never answers it."""
import json, os, socket, struct, sys, threading

def unix(path, serve):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(8)
    def run():
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=guarded, args=(serve, stream), daemon=True).start()
    threading.Thread(target=run, daemon=True).start()

def guarded(serve, stream):
    with stream:
        try:
            _, uid, _ = struct.unpack("=3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if "late" in sys.argv and uid != 0:
                while stream.recv(512):
                    pass
            else:
                serve(stream)
        except (OSError, EOFError):
            pass

def exactly(stream, length):
    data = b""
    while len(data) < length:
        more = stream.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data

def varlink(stream):
    asked = b""
    while not asked.endswith(b"\0"):
        asked += exactly(stream, 1)
    assert json.loads(asked[:-1])["method"] == "io.systemd.Resolve.ResolveHostname"
    stream.sendall(b'{"error":"io.systemd.Resolve.NoNameServers","parameters":{}}\0')

def nscd(stream):
    version, kind, length = struct.unpack("=3i", exactly(stream, 12))
    exactly(stream, length)
    # Names of hosts are looked up; users and groups, which every program asks for, are not its business.
    assert version == 2
    stream.sendall(struct.pack("=8i", 2, 0 if kind == 4 else -1, 0, 0, -1, -1, 0, 1))

def avahi(stream):
    stream.recv(256)
    stream.sendall(b"-15 Timeout reached\n")

def message(kind, serial, reply, error):
    fields = b"\x05\x01u\0" + struct.pack("<I", reply)
    if error:
        fields += b"\x04\x01s\0" + struct.pack("<I", len(error)) + error + b"\0"
    head = b"l" + bytes([kind, 0, 1]) + struct.pack("<III", 0, serial, len(fields)) + fields
    return head + b"\0" * (-len(head) % 8)

def bus(stream):
    line = b""
    while not line.endswith(b"\r\n"):
        line += exactly(stream, 1)
    assert line.startswith(b"\0AUTH EXTERNAL ")
    stream.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
    assert exactly(stream, 7) == b"BEGIN\r\n"
    for serial, (kind, error) in enumerate([(2, b""), (3, b"org.freedesktop.resolve1.NoNameServers")], 1):
        head = exactly(stream, 16)
        body, _, fields = struct.unpack("<III", head[4:])
        exactly(stream, fields + -fields % 8 + body)
        stream.sendall(message(kind, serial, serial, error))
    exactly(stream, 1)

def stub(_):
    asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asked.bind(("127.0.0.53", 53))
    def run():
        while True:
            question, client = asked.recvfrom(512)
            asked.sendto(question[:2] + b"\x81\x83" + question[4:], client)
    threading.Thread(target=run, daemon=True).start()

PLACES = {
    "resolved-varlink": ("/run/systemd/resolve/io.systemd.Resolve", varlink),
    "resolved-bus": ("/run/dbus/system_bus_socket", bus),
    "nscd": ("/run/nscd/socket", nscd),
    "avahi": ("/run/avahi-daemon/socket", avahi),
}
for which in sys.argv[1:]:
    if which == "stub":
        stub(None)
    elif which != "late":
        unix(*PLACES[which])
print("ready", flush=True)
threading.Event().wait()
