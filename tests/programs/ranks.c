// ranks DIR ITERATIONS BYTES COMPUTE_US SLOW_RANK FACTOR
// An MPI program whose ranks read DIR/in.RANK, then compute and pass BYTES around a ring, ITERATIONS times, then write
// DIR/out.RANK; rank 0 gathers their sums into DIR/result. Rank SLOW_RANK computes FACTOR times as much. Each
// rank prints its work.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double own_time(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	char name[4096], host[MPI_MAX_PROCESSOR_NAME], block[65536];
	int rank, size, i, length;
	long sum = 0, read_bytes = 0, *sums = NULL;
	double computed = 0;
	FILE *file;

	MPI_Init(&argc, &argv);
	if (argc != 7)
		return 2;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Get_processor_name(host, &length);
	int iterations = atoi(argv[2]), bytes = atoi(argv[3]), slow = atoi(argv[5]);
	double work = atof(argv[4]) * 1e-6 * (rank == slow ? atof(argv[6]) : 1);
	char *out = calloc(1, bytes), *in = calloc(1, bytes);

	snprintf(name, sizeof name, "%s/in.%d", argv[1], rank);
	if (!(file = fopen(name, "r")))
		MPI_Abort(MPI_COMM_WORLD, 3);
	for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0; read_bytes += n)
		for (size_t k = 0; k < n; k++)
			sum += block[k];
	fclose(file);
	for (i = 0; i < iterations; i++) {
		double begin = own_time(CLOCK_THREAD_CPUTIME_ID), now;

		do
			now = own_time(CLOCK_THREAD_CPUTIME_ID);
		while (now - begin < work);
		computed += now - begin;
		MPI_Sendrecv(out, bytes, MPI_CHAR, (rank + 1) % size, 1, in, bytes, MPI_CHAR,
			     (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	snprintf(name, sizeof name, "%s/out.%d", argv[1], rank);
	if (!(file = fopen(name, "w")) || fwrite(in, 1, bytes, file) != (size_t)bytes || fclose(file))
		MPI_Abort(MPI_COMM_WORLD, 4);
	if (rank == 0)
		sums = malloc(size * sizeof *sums);
	MPI_Gather(&sum, 1, MPI_LONG, sums, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		snprintf(name, sizeof name, "%s/result", argv[1]);
		if (!(file = fopen(name, "w")))
			MPI_Abort(MPI_COMM_WORLD, 5);
		for (i = 0; i < size; i++)
			fprintf(file, "%ld\n", sums[i]);
		fclose(file);
	}
	printf("rank %d host %s read %ld computed %.6f sent %ld\n", rank, host, read_bytes, computed,
	       (long)iterations * bytes);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
