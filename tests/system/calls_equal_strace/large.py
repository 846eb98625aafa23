"""Reads and writes more in one call than the kernel puts into one request."""

import mmap
import os
import threading

MEBI = 1 << 20
memory = mmap.mmap(-1, 16 * MEBI)  # begins on a page
memory[:] = bytes(range(256)) * (len(memory) // 256)
aligned = memoryview(memory)

data = os.open("data", os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def again():
    os.lseek(data, 0, os.SEEK_SET)


for length in 5 * MEBI, MEBI, MEBI, 2 * MEBI + 1, 4 * MEBI - 1, MEBI + 4096:
    os.write(data, aligned[:length])
for skew in 0, 1, 16, 2048, 4095:
    again()
    for length in MEBI, MEBI - skew, MEBI + 1, 3 * MEBI, 2 * MEBI, 100, 2 * MEBI, 9 * MEBI, MEBI:
        os.readv(data, [aligned[skew : skew + length]])
    os.preadv(data, [aligned[skew : skew + 5 * MEBI]], 7)
    os.preadv(data, [aligned[skew : skew + 5 * MEBI]], 12 * MEBI)
    os.preadv(data, [aligned[skew : skew + 5 * MEBI]], 99 * MEBI)
    os.pwritev(data, [aligned[skew : skew + 3 * MEBI]], 3 * MEBI + 1)
with open("data", "rb", buffering=0) as file:
    while file.readinto(aligned[: 6 * MEBI]):
        pass
    file.seek(0)
    while file.readinto(aligned[48 : 48 + 2 * MEBI]):
        pass
    file.seek(0)
    file.readall()

# Scattered: each buffer takes a page or two, however small it is.
for size, stride, count in (1000, 4096, 1024), (5000, 8192, 1000), (64, 4096, 1024), (9, 16, 1024):
    buffers = [aligned[n * stride + 3 : n * stride + 3 + size] for n in range(count)]
    again()
    for _ in range(3):
        os.writev(data, buffers)
    again()
    for _ in range(3):
        os.readv(data, buffers)
    os.preadv(data, buffers, 10)
    os.preadv(data, buffers, 10)
    os.pwritev(data, buffers, 20)
several = [aligned[:MEBI], aligned[5 * MEBI : 7 * MEBI + 1], aligned[9 * MEBI + 5 : 9 * MEBI + 50]]
again()
for _ in range(3):
    os.readv(data, several)
    os.writev(data, several)

appended = os.open("appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for length in 3 * MEBI, 3 * MEBI, MEBI, MEBI + 7:
    os.write(appended, aligned[:length])
    os.writev(appended, [aligned[:length], aligned[1:9]])
os.pwrite(appended, aligned[: 2 * MEBI], 5)


def work(number):
    for at in range(3):
        os.pread(data, 3 * MEBI, (at + number) * MEBI)
        os.preadv(data, [aligned[number * MEBI : (number + 4) * MEBI]], 0)
        os.pwritev(data, [aligned[number * MEBI : (number + 2) * MEBI]], (3 * at + number) * MEBI)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
