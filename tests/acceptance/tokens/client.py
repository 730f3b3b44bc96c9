"""Speaks on one connection what it is told, word by word, and prints what it was answered."""
import base64, socket, ssl, sys
trust, host, port, *steps = sys.argv[1:]
wire = socket.create_connection((host, int(port)), 60)
wire.settimeout(60)
version = "1.1"
def fields(login):
    if login == "-": return ""
    if login.startswith("bearer:"): return f"Proxy-Authorization: Bearer {login[7:]}\r\n"
    if login.startswith("raw:"): return login[4:].replace("|", "\r\n") + "\r\n"
    return "Proxy-Authorization: Basic " + base64.b64encode(login.encode()).decode() + "\r\n"
def answer(wire, head=False):
    seen = b""
    while b"\r\n\r\n" not in seen:
        more = wire.recv(1)
        if not more: return "closed" if not seen else "cut " + repr(seen)
        seen += more
    text = seen.decode()
    low = text.lower()
    length = 0
    for line in low.split("\r\n"):
        if line.startswith("content-length:"): length = int(line.split(":")[1])
    body = b""
    while not head and len(body) < length:
        more = wire.recv(length - len(body))
        if not more: break
        body += more
    return " ".join([text.split()[1],
        "challenge" if "\r\nproxy-authenticate: basic realm=" in low else "-",
        "close" if "\r\nconnection: close" in low else "keep",
        next((l.split(":")[1].strip() for l in low.split("\r\n") if l.startswith("x-portcullis-code")), "-"),
        body.decode().replace("\n", " ").strip()[:400]])
for step in steps:
    what, target, login = step.split(" ", 2)
    try:
        if what == "old":
            wire.sendall(f"CONNECT {target} HTTP/1.0\r\n{fields(login)}\r\n".encode())
            print(answer(wire))
        elif what == "connect":
            wire.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{fields(login)}\r\n".encode())
            print(answer(wire))
        elif what == "split":
            head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{fields(login)}\r\n".encode()
            for at in range(len(head)): wire.sendall(head[at:at + 1])
            print(answer(wire))
        elif what == "tls":
            wire = ssl.create_default_context(cafile=trust).wrap_socket(wire, server_hostname=target)
        elif what == "inside":
            host, path = target.split("/", 1)
            wire.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n{fields(login)}\r\n".encode())
            print(answer(wire))
        elif what in ("GET", "HEAD", "POST"):
            host = target.split("/")[2]
            body = "abc" if what == "POST" else ""
            length = f"Content-Length: {len(body)}\r\n" if body else ""
            wire.sendall(f"{what} {target} HTTP/1.1\r\nHost: {host}\r\n{length}{fields(login)}\r\n{body}".encode())
            print(answer(wire, what == "HEAD"))
        elif what == "raw":
            wire.sendall(login.encode().decode("unicode_escape").encode("latin1"))
            print(answer(wire))
        elif what == "end":
            print("closed" if not wire.recv(1) else "open")
    except OSError as error:
        print("error", type(error).__name__)
