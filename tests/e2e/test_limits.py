"""What one sandbox may take of the host, and what still works when something took it all."""

import hashlib
import os
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone, wait_until
from openshell._proto import openshell_pb2


def test_a_sandbox_that_filled_the_disk_can_be_deleted_and_others_go_on(scratch):
    """The disk of the state directory is full to the last byte; the database must still take what frees it."""
    folder = scratch / "full"
    folder.mkdir(mode=0o711)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=0711", "tmpfs", str(folder)], check=True)
    gateway = Gateway(folder)
    try:
        gateway.start()
        with gateway.client() as client:
            create_ready(client, "greedy")
            create_ready(client, "modest")
            filled = client.exec("greedy", ["sh", "-c", "cat /dev/urandom > /sandbox/a; head -c 1m /dev/urandom > /sandbox/b; true"], workspace=WORKSPACE)
            assert "No space left" in filled.stderr
            assert os.statvfs(folder).f_bavail == 0
            assert client.exec("modest", ["echo", "works"], workspace=WORKSPACE).stdout == "works\n"
            client.delete("greedy", workspace=WORKSPACE)
            client.wait_deleted("greedy", workspace=WORKSPACE, timeout_seconds=20)
            assert os.statvfs(folder).f_bavail > 0
            delete_gone(client, "modest")
    finally:
        gateway.end()
        gateway.log.close()
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_tmp_is_bounded_and_counts_as_memory_of_the_sandbox(scratch):
    folder = scratch / "tmp"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder, driver_options='tmp_size_limit = "8Mi"\ndefault_memory_limit = "128Mi"')
    gateway.start()
    try:
        with gateway.client() as client:
            create_ready(client, "small-tmp")
            result = client.exec("small-tmp", ["sh", "-c", "head -c 9m /dev/urandom > /tmp/a; head -c 9m /dev/urandom > /var/tmp/b; df -k --output=size /tmp | tail -1"], workspace=WORKSPACE)
            assert result.stderr.count("No space left") == 2 and result.stdout.split() == ["8192"]
            # The default limit of the memory: the program is killed, the sandbox lives on.
            eaten = client.exec("small-tmp", ["python3", "-c", "x = bytearray(300 << 20)"], workspace=WORKSPACE)
            assert eaten.exit_code == 137
            assert client.exec("small-tmp", ["echo", "alive"], workspace=WORKSPACE).stdout == "alive\n"
            delete_gone(client, "small-tmp")
    finally:
        gateway.end()


def runtime_of(sandbox_id, word):
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            cgroup = (process / "cgroup").read_text()
        except OSError:
            continue
        if word in words and (sandbox_id in cgroup or sandbox_id.encode() in words):
            found.append(int(process.name))
    return found


def test_delete_after_the_runtime_was_killed_does_not_wait(client):
    """The supervisor's channel is dead: it must end at once when told, not after its recovery window."""
    reference = create_ready(client, "killed")
    (runtime,) = runtime_of(reference.id, b"openshell-sandbox\0")
    os.kill(runtime, signal.SIGKILL)
    begin = time.monotonic()
    delete_gone(client, "killed")
    assert time.monotonic() - begin < 5


def test_B31_a_runtime_killed_behind_the_gateway_is_noticed_and_put_back(client):
    reference = create_ready(client, "phantom", spec=openshell_pb2.SandboxSpec(command=["sleep", "4718"]))
    (runtime,) = runtime_of(reference.id, b"openshell-sandbox\0")
    os.kill(runtime, signal.SIGKILL)

    def noticed():
        return client.get("phantom", workspace=WORKSPACE).status.phase != openshell_pb2.SANDBOX_PHASE_READY

    wait_until(noticed, 10, "another phase than Ready")
    wait_until(lambda: not noticed(), 40, "the recovery")
    assert client.exec("phantom", ["echo", "back"], workspace=WORKSPACE).stdout == "back\n"
    delete_gone(client, "phantom")


@pytest.mark.parametrize("who", [b"openshell-sandbox\0", b"openshell-supervisor"])
def test_a_stopped_process_of_ours_is_noticed_within_a_minute(client, who):
    reference = create_ready(client, "frozen")
    pids = runtime_of(reference.id, who)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        def noticed():
            return client.get("frozen", workspace=WORKSPACE).status.phase != openshell_pb2.SANDBOX_PHASE_READY

        wait_until(noticed, 60, "another phase than Ready")
        with pytest.raises(Exception):
            client.exec("frozen", ["true"], workspace=WORKSPACE, timeout_seconds=5)
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        delete_gone(client, "frozen")


def test_nothing_of_a_gateway_is_left_below_the_cgroups(scratch):
    folder = scratch / "tidy"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder)
    name = "openshell-" + hashlib.sha256(str(gateway.state / "process-driver").encode()).hexdigest()[:12]

    def groups():
        return [path for pattern in ("*", "*/*/*") for path in pathlib.Path("/sys/fs/cgroup").glob(f"{pattern}/{name}")]

    gateway.start()
    with gateway.client() as client:
        assert not groups(), "made with the first sandbox"
        create_ready(client, "tidy")
        assert groups() or os.geteuid() != 0
        delete_gone(client, "tidy")
    gateway.end()
    wait_until(lambda: not groups(), 2, f"the end of {name}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk file system")
def test_the_workspace_has_a_size_and_keeps_its_files_over_a_stop(scratch):
    folder = scratch / "sized"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder, driver_options='workspace_size_limit = "32Mi"')
    gateway.start()
    loops = subprocess.run(["losetup", "-l", "-n", "-O", "BACK-FILE"], capture_output=True, text=True).stdout
    try:
        with gateway.client() as client:
            create_ready(client, "sized")
            filled = client.exec("sized", ["sh", "-c", "ls -A /sandbox; echo note > /sandbox/note; head -c 64m /dev/urandom > /sandbox/big; echo after > /tmp/x"], workspace=WORKSPACE)
            assert filled.stdout == "" and "No space left" in filled.stderr
            client.stop("sized", workspace=WORKSPACE)
            client.start("sized", workspace=WORKSPACE)
            client.wait_ready("sized", workspace=WORKSPACE, timeout_seconds=30)
            assert client.exec("sized", ["sh", "-c", "cat /sandbox/note; rm /sandbox/big; echo new > /sandbox/note; cat /sandbox/note"], workspace=WORKSPACE).stdout == "note\nnew\n"
            delete_gone(client, "sized")
    finally:
        gateway.end()
    after = subprocess.run(["losetup", "-l", "-n", "-O", "BACK-FILE"], capture_output=True, text=True).stdout
    assert str(folder) not in after, f"a loop device stays: {after} (before: {loops})"
