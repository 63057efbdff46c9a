/* Two jobs, one array: a producer on a 2 x 2 grid puts ten steps, a consumer on three stripes of rows gets them and looks at every element.
 *
 *     mpicc coupled.c $(pkg-config --cflags --libs reshard) -o coupled
 *     mpirun -n 4 ./coupled produce run.meet & mpirun -n 3 ./coupled consume run.meet
 *
 * or both in one launch, where MPI carries the data:
 *
 *     mpirun -n 4 ./coupled produce : -n 3 ./coupled consume
 */
#include <mpi.h>
#include <reshard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10 };

static void check(int code)
{
    if (code != RESHARD_OK) {
        fprintf(stderr, "reshard: %s (%s)\n", reshard_error_message(), reshard_error_name(code));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Visits the elements of a rank's part: writes what they are in a step, or counts those that are not. */
static long visit(const reshard_layout *layout, uint64_t rank, double *part, uint64_t step, int write)
{
    uint64_t extents[2], strides[2], local[2], global[2];
    long wrong = 0;
    check(reshard_layout_local_shape(layout, rank, 2, extents));
    check(reshard_layout_strides(layout, rank, 2, strides));
    for (local[0] = 0; local[0] < extents[0]; local[0]++)
        for (local[1] = 0; local[1] < extents[1]; local[1]++) {
            check(reshard_layout_global_index(layout, rank, 2, local, global));
            double *place = &part[local[0] * strides[0] + local[1] * strides[1]];
            double value = 1e6 * (double)step + 1000.0 * (double)global[0] + (double)global[1];
            if (write)
                *place = value;
            else if (*place != value)
                wrong++;
        }
    return wrong;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc < 2) {
        fprintf(stderr, "give produce or consume, and the path of a meeting file unless one launch began both\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int produces = strcmp(argv[1], "produce") == 0, rank;
    const char *meeting = argc > 2 ? argv[2] : NULL;
    const char *options = meeting ? "deadline=60"
                                  : produces ? "deadline=60 program=simulation partner=viewer"
                                             : "deadline=60 program=viewer partner=simulation";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!meeting && !produces) rank -= 4; /* ranks of layouts are those of the job: the producer's four come first */

    reshard_layout *layout;
    check(reshard_layout_parse(produces ? "2x2/64x64 of 500x300" : "3x1/50x50 of 500x300", &layout));
    uint64_t elements;
    check(reshard_layout_span(layout, (uint64_t)rank, &elements));
    size_t bytes = (size_t)elements * sizeof(double), array;
    double *part = malloc(bytes + 1);
    if (produces) {
        reshard_publisher *publisher;
        check(reshard_publisher_mpi(MPI_COMM_WORLD, options, &publisher));
        check(reshard_publish(publisher, "t", layout, "f64", &array));
        check(reshard_publisher_open(publisher, meeting));
        check(reshard_publisher_wait_for(publisher, 1));
        reshard_source source = {part, bytes};
        for (uint64_t step = 0; step < STEPS; step++) {
            visit(layout, (uint64_t)rank, part, step, 1);
            check(reshard_put(publisher, array, step, "hello", 5, &source, 1));
        }
        size_t complete;
        check(reshard_publisher_finish(publisher, &complete));
        if (rank == 0) printf("put %d steps, %d consumer took them all\n", STEPS, (int)complete);
        reshard_publisher_free(publisher);
    } else {
        reshard_subscriber *subscriber;
        check(reshard_subscriber_mpi(MPI_COMM_WORLD, options, &subscriber));
        check(reshard_subscribe(subscriber, "t", layout, "f64", NULL, "depth=3", &array));
        check(reshard_subscriber_connect(subscriber, meeting));
        reshard_target target = {part, bytes};
        reshard_step step;
        int there, steps = 0;
        for (check(reshard_get(subscriber, array, &target, 1, &step, &there)); there;
             check(reshard_get(subscriber, array, &target, 1, &step, &there))) {
            long wrong = visit(layout, (uint64_t)rank, part, step.number, 0);
            if (wrong || step.number != (uint64_t)steps || step.header_bytes != 5 || memcmp(step.header, "hello", 5)) {
                fprintf(stderr, "rank %d: step %d came with %ld wrong elements\n", rank, steps, wrong);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            steps++;
        }
        check(reshard_subscriber_leave(subscriber));
        if (steps != STEPS) MPI_Abort(MPI_COMM_WORLD, 1);
        if (rank == 0) printf("got %d steps, every element right\n", steps);
        reshard_subscriber_free(subscriber);
    }
    reshard_layout_free(layout);
    free(part);
    MPI_Finalize();
    return 0;
}
