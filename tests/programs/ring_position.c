/* Writes three lines through io_uring at the position of a file (offset -1) that was opened after the ring was made,
   and one by write(2) in between; then reads them back the same way. Prints what it read and the position. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ring;
static struct io_uring_params parameters;
static char *submissions, *completions;
static struct io_uring_sqe *entries;

static int submit(int operation, int fd, void *data, unsigned length) {
    unsigned *tail = (void *)(submissions + parameters.sq_off.tail);
    unsigned *array = (void *)(submissions + parameters.sq_off.array);
    unsigned at = *tail & *(unsigned *)(submissions + parameters.sq_off.ring_mask);
    memset(entries + at, 0, sizeof *entries);
    entries[at].opcode = operation;
    entries[at].fd = fd;
    entries[at].addr = (unsigned long)data;
    entries[at].len = length;
    entries[at].off = -1;
    array[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0)
        return -1;
    unsigned *head = (void *)(completions + parameters.cq_off.head);
    struct io_uring_cqe *results = (void *)(completions + parameters.cq_off.cqes);
    int result = results[*head & *(unsigned *)(completions + parameters.cq_off.ring_mask)].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(int count, char **arguments) {
    ring = syscall(SYS_io_uring_setup, 8, &parameters);
    if (ring < 0) {
        perror("io_uring_setup");
        return 77;
    }
    int shared = MAP_SHARED | MAP_POPULATE, both = PROT_READ | PROT_WRITE;
    submissions = mmap(0, parameters.sq_off.array + parameters.sq_entries * 4, both, shared, ring, IORING_OFF_SQ_RING);
    completions = mmap(0, parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe), both, shared,
                       ring, IORING_OFF_CQ_RING);
    entries = mmap(0, parameters.sq_entries * sizeof *entries, both, shared, ring, IORING_OFF_SQES);
    int file = open(arguments[count - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    char line[16], all[64] = "";
    for (int i = 0; i < 3; i++) {
        int length = sprintf(line, "line %d\n", i);
        if (submit(IORING_OP_WRITE, file, line, length) != length || (i == 1 && write(file, "between\n", 8) != 8))
            return 1;
    }
    long end = lseek(file, 0, SEEK_CUR);
    lseek(file, 0, SEEK_SET);
    for (int got, have = 0; (got = submit(IORING_OP_READ, file, all + have, 5)) > 0;)
        have += got;
    printf("%s%ld\n", all, end);
    return 0;
}
