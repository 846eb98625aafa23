/* Forks a child that ends with 5, waits for it, and ends with 6: without a library, so that it can
   be built for 32 bits wherever there is a compiler. */
static long call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
  return result;
}

enum { EXIT = 1, FORK = 2, WAITPID = 7 }; /* arch/x86/entry/syscalls/syscall_32.tbl */

void _start(void) {
  long pid = call(FORK, 0, 0, 0);
  if (pid == 0) call(EXIT, 5, 0, 0);
  int status = 0;
  call(WAITPID, pid, (long)&status, 0);
  call(EXIT, status == 5 << 8 ? 6 : 99, 0, 0);
}
