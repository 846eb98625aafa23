"""Calls on files that move no data, with and without success."""

import contextlib
import fcntl
import mmap
import os
import threading

os.mkdir("d")
with open("d/a", "w+") as file:
    file.write("x" * 100)
    file.flush()
    number = file.fileno()
    fcntl.lockf(file, fcntl.LOCK_EX, 10, 20)
    fcntl.lockf(file, fcntl.LOCK_UN)
    fcntl.flock(file, fcntl.LOCK_SH)
    os.fsync(number)
    os.fdatasync(number)
    os.ftruncate(number, 5000)
    os.fchmod(number, 0o640)
    os.posix_fallocate(number, 0, 8192)
    with mmap.mmap(number, 0) as mapping:
        mapping[0] = 65
    with mmap.mmap(number, 4096, access=mmap.ACCESS_READ) as mapping:
        assert mapping[0] == 65
    os.lseek(number, 0, os.SEEK_DATA)
    os.utime(number)
    os.fstatvfs(number)
    copy = os.dup(number)
    os.close(copy)
os.utime("d/a", (1, 2))
os.truncate("d/a", 10)
os.symlink("a", "d/l")
os.link("d/a", "d/b")
os.rename("d/b", "d/c")
os.lstat("d/l")
os.stat("d/l")
os.readlink("d/l")
os.chmod("d/l", 0o600)
os.chown("d/a", os.getuid(), os.getgid())
os.lchown("d/l", os.getuid(), os.getgid())
os.access("d/a", os.R_OK)
os.mkfifo("d/p")
os.listdir("d")
with os.scandir("d") as entries:
    sorted(entry.stat().st_size for entry in entries)
os.statvfs("d")
for call in (
    lambda: os.setxattr("d/a", "user.x", b"1"),
    lambda: os.getxattr("d/a", "user.x"),
    lambda: os.listxattr("d/a"),
    lambda: os.removexattr("d/a", "user.x"),
    lambda: os.stat("none"),
    lambda: os.unlink("none"),
    lambda: os.rmdir("d"),
    lambda: os.mkdir("d"),
    lambda: os.readlink("d/a"),
    lambda: os.rename("none", "other"),
    lambda: os.open("d/a/x", os.O_RDONLY),
    lambda: os.open("d/a", os.O_CREAT | os.O_EXCL),
    lambda: os.chmod("none", 0o600),
    lambda: os.truncate("none", 0),
    lambda: os.chdir("none"),
):
    with contextlib.suppress(OSError):
        call()
directory = os.open("d", os.O_RDONLY)
os.stat("a", dir_fd=directory)
os.stat(directory)
os.mkdir("e", dir_fd=directory)
os.rename("e", "f", src_dir_fd=directory, dst_dir_fd=directory)
os.unlink("c", dir_fd=directory)
os.fsync(directory)
os.fchdir(directory)
os.stat("a")
os.chdir("..")
os.close(directory)


def work(n):
    """Names of several threads at once."""
    name = f"t{n}"
    for _ in range(50):
        open(name, "w").close()
        os.stat(name)
        os.unlink(name)


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if os.fork() == 0:
    os.chdir("d")
    os.stat("a")
    os._exit(0)
os.wait()
os.rmdir("d/f")
for name in "a", "l", "p":
    os.unlink(f"d/{name}")
os.rmdir("d")
