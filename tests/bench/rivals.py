"""The rivals, each real, of this machine and started for this run. One that is absent is skipped with the words that would bring it here."""

import json
import os
import pathlib
import shutil
import subprocess
import time

from conftest import free_port, wait_until

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
         "--symlink", "usr/bin", "/bin", "true"]


def listening(port):
    import socket
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def bubblewrap(report):
    """The command that starts `true` in namespaces of its own, or None."""
    if not shutil.which("bwrap"):
        report.skip("bwrap", "not installed (apt-get install bubblewrap)")
        return None
    result = subprocess.run(BWRAP, capture_output=True, text=True)
    if result.returncode != 0:
        report.skip("bwrap", result.stderr.strip()[:200])
        return None
    return BWRAP


class Docker:
    """An engine of this run alone (own data, own socket), with an image of one static program. `command` is None where there is none."""

    def __init__(self, report, root):
        self.command = self.process = None
        if os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("docker"):
            report.skip("docker", "no engine that root could start here (apt-get install docker.io)")
            return
        folder = pathlib.Path(root) / "docker"
        folder.mkdir()
        (folder / "daemon.json").write_text("{}")
        socket = folder / "s"
        log = (folder / "log").open("wb")
        words = ["dockerd", "--config-file", folder / "daemon.json", "--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid",
                 "--bridge=none", "--iptables=false", "-H", f"unix://{socket}"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        docker = ["docker", "-H", f"unix://{socket}"]
        try:
            wait_until(lambda: subprocess.run([*docker, "info"], capture_output=True).returncode == 0, 40, "an answer of dockerd")
            self.make_image(docker, folder)
            self.command = [*docker, "run", "--rm", "--network=none", "bench-true", "/true"]
            subprocess.run(self.command, check=True, capture_output=True, timeout=60)
        except Exception as error:  # whatever it is: a rival that does not work is no rival
            self.command = None
            report.skip("docker", f"{error}; {(folder / 'log').read_text()[-200:]}")

    @staticmethod
    def make_image(docker, folder):
        root = folder / "image"
        root.mkdir()
        subprocess.run(["cc", "-static", "-O1", "-x", "c", "-", "-o", root / "true"], input=b"int main(void) { return 0; }", check=True)
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run([*docker, "import", "-", "bench-true"], stdin=tar.stdout, check=True, capture_output=True)

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


class Proxy:
    """An HTTP proxy that opens TLS, with the CA that a client of it must trust."""

    def __init__(self, name, process, port, ca):
        self.name, self.process, self.port, self.ca = name, process, port, ca
        self.address = f"127.0.0.1:{port}"

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def mitmproxy(report, build, root, upstream_ca):
    program = build / "bench" / "mitmproxy" / "bin" / "mitmdump"
    if not program.exists():
        report.skip("mitmproxy", "could not be installed from PyPI; see build/bench/mitmproxy.log")
        return None
    folder = pathlib.Path(root) / "mitmproxy"
    folder.mkdir()
    port = free_port()
    words = [program, "-q", "--listen-host", "127.0.0.1", "--listen-port", str(port), "--set", f"confdir={folder}",
             "--set", f"ssl_verify_upstream_trusted_ca={upstream_ca}", "--set", "connection_strategy=lazy"]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: listening(port), 30, "an answer of mitmproxy")
    except AssertionError as error:
        process.kill()
        report.skip("mitmproxy", f"{error}; {(folder / 'log').read_text()[-200:]}")
        return None
    return Proxy("mitmproxy", process, port, folder / "mitmproxy-ca-cert.pem")


def squid(report, root, upstream_ca):
    generator = pathlib.Path("/usr/lib/squid/security_file_certgen")
    if not shutil.which("squid", path="/usr/sbin:/usr/bin") or not generator.exists():
        report.skip("squid with ssl-bump", "not installed (apt-get install squid-openssl)")
        return None
    folder = pathlib.Path(root) / "squid"
    folder.mkdir(mode=0o755)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=squid CA",
                    "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", folder / "ca.key", "-out", folder / "ca.pem"], check=True, capture_output=True)
    subprocess.run([generator, "-c", "-s", folder / "certificates", "-M", "4MB"], check=True, capture_output=True)
    user = "proxy" if os.geteuid() == 0 else None
    if user:
        subprocess.run(["chown", "-R", user, folder], check=True)
    port = free_port()
    (folder / "squid.conf").write_text(f"""
http_port 127.0.0.1:{port} ssl-bump generate-host-certificates=on dynamic_cert_mem_cache_size=4MB tls-cert={folder}/ca.pem tls-key={folder}/ca.key
sslcrtd_program {generator} -s {folder}/certificates -M 4MB
sslcrtd_children 2 startup=2 idle=1
tls_outgoing_options cafile={upstream_ca}
acl start at_step SslBump1
ssl_bump peek start
ssl_bump bump all
http_access allow all
cache deny all
access_log none
cache_log {folder}/cache.log
pid_filename {folder}/pid
coredump_dir {folder}
workers 1
shutdown_lifetime 0 seconds
via off
forwarded_for delete
server_persistent_connections on
pinger_enable off
hosts_file {folder}/hosts
""")
    (folder / "hosts").write_text("127.0.0.1 localhost host.openshell.internal\n")
    log = (folder / "log").open("wb")
    process = subprocess.Popen(["/usr/sbin/squid", "-N", "-f", folder / "squid.conf"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: listening(port), 30, "an answer of squid")
    except AssertionError as error:
        process.kill()
        tail = (folder / "cache.log").read_text()[-300:] if (folder / "cache.log").exists() else (folder / "log").read_text()[-300:]
        report.skip("squid with ssl-bump", f"{error}; {tail}")
        return None
    return Proxy("squid", process, port, folder / "ca.pem")
