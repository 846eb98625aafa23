// Messages of many sizes between all ranks of an MPI program, by pairs and collectively.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank, size, round;
	static char out[200000], in[200000];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (round = 0; round < 20; round++) {
		int bytes = round % 2 ? 150000 : 1000 * (round + 1);
		int next = (rank + 1) % size, last = (rank + size - 1) % size;
		double sum = rank, all = 0;

		MPI_Sendrecv(out, bytes, MPI_CHAR, next, 1, in, bytes, MPI_CHAR, last, 1, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		MPI_Alltoall(out, 4000, MPI_CHAR, in, 4000, MPI_CHAR, MPI_COMM_WORLD);
		if (all != size * (size - 1) / 2)
			abort();
	}
	MPI_Finalize();
	return 0;
}
