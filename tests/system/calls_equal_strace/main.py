"""Uses files in the ways that Python programs do."""

import mmap
import os
import pickle
import shutil
import sqlite3
import tempfile
import threading
import zipfile

import package
import package.one
import package.two

assert package.two.NAME == "two"

with open("lines", "w") as file:
    for n in range(30000):
        file.write(f"line {n}\n")
with open("lines") as file:
    assert sum(1 for _ in file) == 30000
with open("lines", "rb") as file:
    file.seek(1000)
    file.read(10)
    file.seek(-100, os.SEEK_END)
    file.read()
with open("lines", "a") as file:
    file.write("one more\n")
with open("lines", "r+b", buffering=0) as file:
    file.read(100)
    file.write(b"x" * 50)
    file.seek(20, os.SEEK_CUR)
    file.readinto(bytearray(7))
    file.truncate(100000)
    assert file.read(1 << 20) != b""
    assert file.read(5) == b""

with open("lines", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
    mapping[10:20] = b"0123456789"
    mapping.flush()
    assert mapping.find(b"line 500\n") > 0
    file.seek(5)
    file.read(30)

shutil.copy("lines", "copied")
shutil.copyfile("lines", "copied.again")
shutil.move("copied.again", "moved")
source, target = os.open("lines", os.O_RDONLY), os.open("sent", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
offset = 3
while sent := os.sendfile(target, source, offset, 30001):
    offset += sent
os.copy_file_range(source, target, 5000, 100, 200)
os.posix_fallocate(target, 0, 200000)
os.lseek(target, 0, os.SEEK_END)
os.write(target, b"end")
copy = os.dup(target)
os.lseek(copy, 0, os.SEEK_SET)
assert len(os.read(target, 11)) == 11
os.pread(copy, 100, 7)
os.pwrite(copy, b"abc", 7)
os.writev(target, [b"a", b"bc", b"def" * 100])
os.readv(copy, [bytearray(3), bytearray(5)])
os.preadv(copy, [bytearray(3), bytearray(5)], 8)
os.pwritev(copy, [b"1", b"2"], 9)
if os.fork() == 0:
    os.read(copy, 10)
    os.write(target, b"child")
    os._exit(0)
os.wait()
os.write(target, b"parent")
for descriptor in source, target, copy:
    os.close(descriptor)

with open("pickled", "wb") as file:
    pickle.dump({n: str(n) * 9 for n in range(20000)}, file, protocol=5)
    pickle.dump(bytes(3000000), file)
with open("pickled", "rb") as file:
    assert len(pickle.load(file)) == 20000
    assert len(pickle.load(file)) == 3000000

with zipfile.ZipFile("archive.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for name in "lines", "pickled", "moved":
        archive.write(name)
with zipfile.ZipFile("archive.zip") as archive:
    archive.extractall("extracted")

with tempfile.TemporaryFile(dir=".") as file:
    file.write(bytes(100000))
    file.seek(50)
    file.read(10)
with tempfile.NamedTemporaryFile(dir=".") as file:
    os.unlink(file.name)
    file.write(b"gone")
    file.flush()
    open(file.name, "wb").close()


def work(number):
    with open(f"thread.{number}", "wb", buffering=0) as own, open("lines", "rb") as lines:
        for line in lines:
            if line.endswith(b"7\n"):
                own.write(line)
        for at in range(0, 50000, 5000):
            os.pread(shared, 2000, at + number)


shared = os.open("lines", os.O_RDONLY)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
os.close(shared)

with sqlite3.connect("base.db") as base:
    base.execute("CREATE TABLE IF NOT EXISTS t(a)")
    base.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(1000)])
base.close()
try:
    os.read(os.open(".", os.O_RDONLY), 10)
except IsADirectoryError:
    pass
