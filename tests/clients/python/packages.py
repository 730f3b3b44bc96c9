"""Makes registries of five kinds, each with one package `left` 1.0.0 (npm's with `@scope/right` too), as files for a web server.

    packages.py DIRECTORY BASE_URL          all below one host
    packages.py DIRECTORY npm=URL pypi=URL crates=URL   each on a host of its own, with the layout that the real one has

Every package is there twice: the second copy lies below `closed/`, for policies to refuse.
"""

import base64
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def tarball(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def npm(root, base):
    # npm asks for a scoped package by one segment with an encoded slash, and for its archive by two.
    for name in ("left", "@scope/right"):
        package = {"name": name, "version": "1.0.0", "main": "index.js"}
        blob = tarball({"package/package.json": json.dumps(package), "package/index.js": "module.exports = 'left';\n"})
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(blob).digest()).decode()
        archive = f"{name}/-/{name.split('/')[-1]}-1.0.0.tgz"
        versions = {"1.0.0": {**package, "dist": {"tarball": f"{base}/{archive}", "integrity": integrity}}}
        document = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": versions}
        put(root / name.replace("/", "%2f") / "index.html", json.dumps(document))
        put(root / archive, blob)


def pypi(root, base):
    files = {
        "left.py": "NAME = 'left'\n",
        "left-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: left\nVersion: 1.0.0\n",
        "left-1.0.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in files) + "left-1.0.0.dist-info/RECORD,,\n"
    files["left-1.0.0.dist-info/RECORD"] = record
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    name = "left-1.0.0-py3-none-any.whl"
    files = "packages/ab/cd/0123" if APART else "files"
    put(root / files / name, out.getvalue())
    digest = hashlib.sha256(out.getvalue()).hexdigest()
    link = f'<a href="{base}/{files}/{name}#sha256={digest}">{name}</a>'
    put(root / "simple/left/index.html", f"<!DOCTYPE html><html><body>{link}</body></html>\n")


def crates(root, base):
    manifest = '[package]\nname = "left"\nversion = "1.0.0"\nedition = "2021"\n'
    blob = tarball({"left-1.0.0/Cargo.toml": manifest, "left-1.0.0/src/lib.rs": "//! Left.\n"})
    files = "crates/{crate}" if APART else "files"
    put(root / "config.json", json.dumps({"dl": f"{base}/{files}/{{crate}}-{{version}}.crate"}))
    put(root / files.format(crate="left") / "left-1.0.0.crate", blob)
    line = {
        "name": "left", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(blob).hexdigest(),
        "features": {}, "yanked": False,
    }
    put(root / "le/ft/left", json.dumps(line) + "\n")


def apt(root, base):
    with tempfile.TemporaryDirectory() as tree:
        tree = pathlib.Path(tree)
        control = "Package: left\nVersion: 1.0.0\nArchitecture: all\nMaintainer: Tests <tests@portcullis.test>\n"
        put(tree / "left/DEBIAN/control", control + "Description: left\n")
        (tree / "left").chmod(0o755)
        (tree / "left/DEBIAN").chmod(0o755)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "--build", "left", "left.deb"], cwd=tree, check=True, stdout=subprocess.DEVNULL
        )
        blob = (tree / "left.deb").read_bytes()
    put(root / "left_1.0.0_all.deb", blob)
    entry = control + "Filename: apt/left_1.0.0_all.deb\n"
    entry += f"Size: {len(blob)}\nSHA256: {hashlib.sha256(blob).hexdigest()}\nDescription: left\n\n"
    put(root / "Packages", entry)
    digest = hashlib.sha256(entry.encode()).hexdigest()
    put(root / "Release", f"Suite: tests\nSHA256:\n {digest} {len(entry)} Packages\n")


def maven(root, base):
    pom = (
        "<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>left</artifactId>"
        "<version>1.0.0</version><packaging>pom</packaging></project>\n"
    )
    put(root / "test/left/1.0.0/left-1.0.0.pom", pom)
    put(root / "test/left/1.0.0/left-1.0.0.pom.sha1", hashlib.sha1(pom.encode()).hexdigest())


root, base = pathlib.Path(sys.argv[1]), sys.argv[2]
APART = "=" in base
if APART:
    for name, url in (word.split("=", 1) for word in sys.argv[2:]):
        {"npm": npm, "pypi": pypi, "crates": crates}[name](root / name, url)
    sys.exit()
for kind in (npm, pypi, crates, apt, maven):
    kind(root / kind.__name__, f"{base}/{kind.__name__}")
    kind(root / "closed" / kind.__name__, f"{base}/closed/{kind.__name__}")
