/* Reads a file, partly by int 0x80, whose numbers and registers mean something else to a 64-bit program: built at a fixed place, for those
   calls take addresses of 32 bits. Ends with 3 where the kernel has no such calls. */
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

static char bytes[100];
static struct iovec piece = {bytes, 3};

/* rdi and rsi are ignored here, but are arguments of other calls. */
static int call(int number, long a, long b, long c) {
  int result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(number), "b"(a), "c"(b), "d"(c), "D"(a), "S"(&piece)
                   : "memory", "r8", "r9", "r10", "r11");
  return result;
}

int main(void) {
  enum { READ = 3, GETPID = 20 };
  int fd = open("data", O_RDONLY);
  if (read(fd, bytes, 10) != 10) return 4;
  /* By the numbers of 64-bit programs this is writev. */
  for (int i = 0; i < 5; i++)
    if (call(GETPID, fd, 0, 1) != getpid()) return 3;
  /* And this is close. */
  if (call(READ, fd, (long)bytes, 20) != 20) return 4;
  for (int i = 0; i < 7; i++)
    if (read(fd, bytes, 10) != 10) return 4;
  for (int i = 0; i < 6; i++)
    if (pread(fd, bytes, 5, 1000 + i) != 5) return 4;
  return lseek(fd, 0, SEEK_CUR) == 100 ? 0 : 4;
}
