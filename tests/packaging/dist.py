#!/usr/bin/env python3
"""dist.py FOLDER: what `make dist` makes of the static program SKUA: archive, .rpm, container image, formula, and the
install script against a server on loopback, into a root of its own. Works in FOLDER."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKUA = Path(os.environ["SKUA"])
WORK = Path(sys.argv[1]) / "dist"
MACHINE = os.uname().machine
PAGES = {f"usr/share/man/man1/{name}.1.gz" for name in ("skua", "skua-run", "skua-top", "skua-flows")}
COMPLETIONS = {
    "share/bash-completion/completions/skua",
    "share/zsh/site-functions/_skua",
    "share/fish/vendor_completions.d/skua.fish",
}


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def make(folder):
    """The files of a release, weakly compressed where that can be said."""
    environment = os.environ | {
        "DIST": str(folder), "DIST_PROGRAMS": str(SKUA), "DEB_COMPRESS": "none", "RPM_COMPRESS": "w1.gzdio",
        "GZIP_LEVEL": "1",
    }
    return run("packaging/dist", env=environment)


def digests(folder):
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    return dict(reversed(line.split("  ")) for line in lines)


def same_twice():
    said = make(WORK / "one")
    umask = os.umask(0o077)
    try:
        make(WORK / "two")
    finally:
        os.umask(umask)
    first, second = digests(WORK / "one"), digests(WORK / "two")
    assert first == second, f"the same inputs give different files: {first} {second}"
    kinds = {re.sub(r"^skua[-_][0-9.]+[0-9]", "skua", name) for name in first}
    debian = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
    assert kinds == {
        "install.sh", "skua.rb", f"skua-linux-{MACHINE}.tar.gz", f"skua_{debian}.deb", f"skua-1.{MACHINE}.rpm",
        "skua.oci.tar",
    }, f"{kinds}: {said}"
    for name, digest in first.items():
        assert hashlib.sha256((WORK / "one" / name).read_bytes()).hexdigest() == digest, name


def archive():
    path = next((WORK / "one").glob("*.tar.gz"))
    top = path.name.removesuffix(".tar.gz")
    with tarfile.open(path) as tar:
        for entry in tar:
            assert entry.name == top or entry.name.startswith(top + "/"), entry.name
            assert entry.isfile() or entry.isdir(), f"{entry.name} is neither file nor folder"
            assert (entry.uid, entry.gid) == (0, 0) and not entry.mode & 0o022, entry.name
        names = set(tar.getnames())
        program = tar.extractfile(f"{top}/bin/skua").read()
    assert program == SKUA.read_bytes(), "the archive has another program"
    wanted = COMPLETIONS | {page.removeprefix("usr/") for page in PAGES} | {
        "LICENSE", "share/doc/skua/README.md", "share/doc/skua/examples/skua.yaml",
        "lib/systemd/system/skua.service",
    }
    assert not wanted - {name.removeprefix(top + "/") for name in names}, wanted


def rpm():
    path = next((WORK / "one").glob("*.rpm"))
    text = run("rpm", "--query", "--package", path, "--queryformat",
               r"%{NAME} %{VERSION} %{ARCH} %{BUILDHOST}\n[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]")
    head, *lines = text.strip().splitlines()
    version = run(SKUA, "--version").split()[1]
    assert head == f"skua {version} {MACHINE} localhost", head
    files = {line.split()[3]: line.split()[:3] for line in lines}
    for file in PAGES | {"usr/" + name for name in COMPLETIONS} | {
        "usr/lib/systemd/system/skua-agent.service", "usr/lib/sysusers.d/skua.conf", "etc/default/skua-collector",
        "usr/share/licenses/skua/copyright",
    }:
        assert "/" + file in files, f"the .rpm has no {file}"
    assert files["/etc/skua"] == ["drwxr-x---", "root", "skua"], files["/etc/skua"]
    assert files["/etc/skua/agent"] == ["drwx------", "root", "root"]
    assert files["/usr/bin/skua"] == ["-rwxr-xr-x", "root", "root"]
    configuration = run("rpm", "--query", "--package", "--configfiles", path).split()
    assert sorted(configuration) == ["/etc/default/skua-agent", "/etc/default/skua-collector", "/etc/skua.yaml"]
    root = WORK / "rpm"
    root.mkdir()
    subprocess.run(f"rpm2cpio '{path}' | cpio --quiet -idm", shell=True, check=True, cwd=root)
    assert (root / "usr/bin/skua").read_bytes() == SKUA.read_bytes(), "the .rpm has another program"
    # Its scripts are sh's; a fault in one leaves the system with half a package.
    for tag in ("PREIN", "POSTIN", "PREUN", "POSTUN"):
        script = run("rpm", "--query", "--package", path, "--queryformat", "%{" + tag + "}")
        assert "(none)" not in script, f"no script {tag}"
        run("sh", "-n", "-c", script)


def image():
    path = next((WORK / "one").glob("*.oci.tar"))
    with tarfile.open(path) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}
    for name, content in files.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(content).hexdigest() == name[13:], name

    def blob(of):
        content = files["blobs/" + of["digest"].replace(":", "/")]
        assert len(content) == of["size"], of
        return content

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (top,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(top))
    config = json.loads(blob(manifest["config"]))
    (layer,) = manifest["layers"]
    plain = gzip.decompress(blob(layer))
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(plain).hexdigest()]
    assert config["config"]["Entrypoint"] == ["/usr/bin/skua"] and config["config"]["Cmd"] == ["run"]
    assert set(config["config"]["ExposedPorts"]) == {"8082/tcp", "8081/tcp", "6343/udp"}
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        assert tar.getnames() == ["usr", "usr/bin", "usr/bin/skua"]
        assert tar.extractfile("usr/bin/skua").read() == SKUA.read_bytes()
    # As docker reads it that knows no OCI layout.
    (docker,) = json.loads(files["manifest.json"])
    assert docker["Config"] in files and all(name in files for name in docker["Layers"])


def formula():
    text = (WORK / "one/skua.rb").read_text()
    name, digest = next((n, d) for n, d in digests(WORK / "one").items() if n.endswith(".tar.gz"))
    assert f'/{name}"\n    sha256 "{digest}"' in text, text
    assert ("on_intel" if MACHINE == "x86_64" else "on_arm") in text


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Says nothing of clients that leave, as curl does at a limit."""

    def handle_error(self, *_):
        pass


def install_script():
    served = WORK / "served"
    served.mkdir()
    for file in (WORK / "one").iterdir():
        (served / file.name).symlink_to(file)
    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=served))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    root = WORK / "root"
    root.mkdir()

    def install(*arguments, base=base, piped=False):
        script = (ROOT / "packaging/install.sh").read_text()
        command = ["sh", "-s", "--", *arguments] if piped else ["sh", str(ROOT / "packaging/install.sh"), *arguments]
        return subprocess.run(
            command, input=script if piped else "", capture_output=True, text=True, cwd=WORK,
            env=os.environ | {"DESTDIR": str(root), "SKUA_BASE_URL": base},
        )

    def below():
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    # What it would do, and then does, as curl pipes it to a shell.
    dry = install("--dry-run")
    assert dry.returncode == 0 and not below(), dry.stderr
    assert f"{root}/usr/local/bin/skua" in dry.stdout
    done = install(piped=True)
    assert done.returncode == 0, done.stderr
    name, digest = next((n, d) for n, d in digests(WORK / "one").items() if n.endswith(".tar.gz"))
    for said in (f"{base}/{name}", digest, f"{root}/usr/local/bin/skua", "nothing was started"):
        assert said in done.stdout, f"{said}: {done.stdout}"
    here = root / "usr/local"
    assert (here / "bin/skua").read_bytes() == SKUA.read_bytes()
    assert stat.S_IMODE((here / "bin/skua").stat().st_mode) == 0o755
    assert (here / "share/man/man1/skua-run.1.gz").is_file() and all((here / c).is_file() for c in COMPLETIONS)
    unit = (here / "lib/systemd/system/skua.service").read_text()
    assert "ExecStart=/usr/local/bin/skua run" in unit, unit
    assert {name for name in below() if not name.startswith("usr/local/")} == set(), below()
    # Again, over it, and what an older one had goes.
    (here / "share/doc/skua/old.md").write_text("of an older Skua")
    with open(here / "share/skua/installed", "a") as receipt:
        receipt.write("share/doc/skua/old.md\n")
    before = below() - {"usr/local/share/doc/skua/old.md"}
    assert install("--base", base, base="https://127.0.0.1:9").returncode == 0
    assert below() == before, below() ^ before
    # Another's file stays where Skua's go.
    (here / "bin/other").write_text("")
    assert install("--remove").returncode == 0
    assert below() == {"usr/local/bin/other"}, below()
    (here / "bin/other").unlink()

    # What must not be installed: each with its reason, and with nothing written.
    def refused(why, **options):
        done = install(**options)
        assert done.returncode != 0 and why in done.stderr, f"{why}: {done}"
        assert not below(), below()

    (served / name).unlink()
    packed = (WORK / "one" / name).read_bytes()
    (served / name).write_bytes(packed[:-1] + bytes([packed[-1] ^ 1]))
    refused("nothing was installed")
    (served / name).unlink()
    refused("cannot download")
    (served / "SHA256SUMS").unlink()
    (served / "SHA256SUMS").write_text(f"{digest}  skua-1.0.0-linux-mips.tar.gz\n{digest}  ../{name}\n")
    refused("has no archive for")
    (served / "SHA256SUMS").write_text("".join(f"{digest}  skua-1.0.{n}-linux-{MACHINE}.tar.gz\n" for n in (0, 1)))
    refused("more than one archive")
    (served / "SHA256SUMS").write_text("x" * 70000)
    refused("cannot download")
    refused("wants an https:// address", base="http://192.0.2.1/skua")
    server.shutdown()


def main():
    WORK.mkdir()
    same_twice()
    archive()
    rpm()
    image()
    formula()
    install_script()


main()
