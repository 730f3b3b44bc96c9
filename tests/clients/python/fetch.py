"""One request with the library that is named: prints status, protocol and body; exit 1 from 400 on.

    fetch.py requests|httpx|httpx2|urllib METHOD URL [BODY]
"""

import sys

library, method, url = sys.argv[1:4]
body = sys.argv[4].encode() if len(sys.argv) > 4 else None


def requests_():
    import requests

    answer = requests.request(method, url, data=body, timeout=60)
    return answer.status_code, "HTTP/1.1", answer.text


def httpx_(http2=False):
    import httpx

    with httpx.Client(http2=http2, timeout=60) as client:
        answer = client.request(method, url, content=body)
        return answer.status_code, answer.http_version, answer.text


def urllib_():
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, "HTTP/1.1", answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, f"HTTP/1.1 {refused.reason}", refused.read().decode()


clients = {"requests": requests_, "httpx": httpx_, "httpx2": lambda: httpx_(True), "urllib": urllib_}
status, protocol, text = clients[library]()
print(status, protocol)
print(text)
sys.exit(status >= 400)
