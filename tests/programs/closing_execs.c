/* closing_execs FILE ROUNDS WIDTH: execs that close descriptors of FILE on the way.
   Each child runs this program again, which runs another one at once: while the kernel announces
   the first exec, the second one waits for the answer to the close. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc == 2) {
    fcntl(atoi(argv[1]), F_SETFD, FD_CLOEXEC);
    execl("/bin/true", "true", (char *)0);
    return 2;
  }
  int bad = 0, width = atoi(argv[3]);
  /* Descriptor 9, which stays open at the first exec. */
  if (dup2(open(argv[1], O_RDWR | O_CREAT, 0666), 9) != 9)
    return 1;
  for (int round = atoi(argv[2]); round > 0; round--) {
    for (int i = 0; i < width; i++)
      if (fork() == 0) {
        execl("/proc/self/exe", "closing_execs", "9", (char *)0);
        _exit(3);
      }
    for (int i = 0, status; i < width; i++)
      bad |= wait(&status) < 0 || status;
  }
  return bad;
}
