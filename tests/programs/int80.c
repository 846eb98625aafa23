/* Reads and writes by int 0x80, as 32-bit programs do: it is built as one, or as a 64-bit program that
   makes the calls of another architecture. Ends with 3 where the kernel has no such calls. */
#define CALLS 200

static int call(int number, long a, long b, long c) {
  int result;
#ifdef __x86_64__
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c)
                   : "memory", "r8", "r9", "r10", "r11");
#else
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
#endif
  return result;
}

/* Below 4 GiB in both, for the calls take addresses of 32 bits: built at a fixed place. */
static char bytes[100];
static const char name[] = "data";

void _start(void) {
  enum { EXIT = 1, READ = 3, WRITE = 4, OPEN = 5, LSEEK = 19 };
  const int read_write_create_truncate = 01102;
  int status = 3;
  int fd = call(OPEN, (long)name, read_write_create_truncate, 0644);
  if (fd >= 0) {
    status = 0;
    for (int i = 0; i < CALLS; i++)
      if (call(WRITE, fd, (long)bytes, sizeof bytes) != sizeof bytes) status = 4;
    if (call(LSEEK, fd, 0, 0) != 0) status = 4;
    for (int i = 0; i < CALLS; i++)
      if (call(READ, fd, (long)bytes, sizeof bytes) != sizeof bytes) status = 4;
  }
  call(EXIT, status, 0, 0);
  for (;;) call(EXIT, 5, 0, 0);
}
