"""A person at a terminal: a program on a pseudo terminal of ours, what it shows, what is typed, how large the window is."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time


def window(fd, columns, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


LEAD = "import fcntl, os, sys, termios; fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0); os.execvp(sys.argv[2], sys.argv[2:])"


class Terminal:
    """`words` on a terminal of `columns` x `rows`, as the leader of its own session, as a login shell would be."""

    def __init__(self, words, environment, columns=100, rows=40, **options):
        self.master, self.slave = pty.openpty()
        window(self.slave, columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.shown = b""

        streams = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave, **options}
        # Not by preexec_fn: between fork and exec gRPC's handlers of this process would run, and write to the terminal now and then.
        words = [sys.executable, "-c", LEAD, str(self.slave), *words]
        self.process = subprocess.Popen(words, env={"TERM": "xterm", **environment}, start_new_session=True, pass_fds=(self.slave,), **streams)

    def read(self, seconds=0.05):
        """What came within that time; b"" too at the end."""
        if not select.select([self.master], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return b""
        self.shown += data
        return data

    def expect(self, text, seconds=20):
        """Waits until `text` was shown; hands back everything up to its end and forgets it."""
        wanted = text.encode()
        end = time.monotonic() + seconds
        while wanted not in self.shown:
            if time.monotonic() > end:
                raise AssertionError(f"{text!r} was not shown within {seconds} s, but {self.shown!r}")
            self.read()
        found, self.shown = self.shown.split(wanted, 1)
        return (found + wanted).decode(errors="replace")

    def type(self, text):
        os.write(self.master, text.encode())

    def resize(self, columns, rows):
        window(self.slave, columns, rows)  # the kernel tells the foreground group

    def wait(self, seconds=20):
        """Its exit code; what it shows until then is read, or it would block."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            self.read()
            if time.monotonic() > end:
                raise AssertionError(f"it did not end within {seconds} s; shown: {self.shown!r}")
        while self.read(0):
            pass
        return self.process.returncode

    def restored(self):
        """Whether the terminal is in the mode from before."""
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.slave)
        os.close(self.master)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
