/* Between processes: a matrix and its row numbers move from a 2 x 2 grid to four stripes of columns, while something else is computed.
 *
 *     mpicc ranks.c $(pkg-config --cflags --libs reshard) -o ranks && mpirun -n 4 ./ranks
 */
#include <mpi.h>
#include <reshard.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1000, COLUMNS = 800 };

static void check(int code)
{
    if (code != RESHARD_OK) {
        fprintf(stderr, "reshard: %s (%s)\n", reshard_error_message(), reshard_error_name(code));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double value(uint64_t row, uint64_t column)
{
    return 1000.0 * (double)row + (double)column;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int me;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    uint64_t rank = (uint64_t)me, shape[1] = {ROWS};

    reshard_layout *from, *to, *line_from, *line_to;
    check(reshard_layout_parse("2x2/64x64 of 1000x800", &from));
    check(reshard_layout_parse("1x4/1000x200 of 1000x800", &to));
    check(reshard_layout_parse_over("(block) on 4", 1, shape, &line_from));
    check(reshard_layout_parse_over("(cyclic) on 3", 1, shape, &line_to)); /* the last rank gets nothing */
    reshard_plan *plan;
    check(reshard_plan_new(&plan));
    check(reshard_plan_add(plan, from, to, sizeof(double)));
    check(reshard_plan_add(plan, line_from, line_to, sizeof(int)));

    reshard_source sources[2];
    reshard_target targets[2];
    for (size_t array = 0; array < 2; array++) {
        check(reshard_plan_source_bytes(plan, array, rank, &sources[array].bytes));
        check(reshard_plan_target_bytes(plan, array, rank, &targets[array].bytes));
        targets[array].address = malloc(targets[array].bytes + 1);
    }
    double *matrix = malloc(sources[0].bytes + 1);
    int *line = malloc(sources[1].bytes + 1);
    sources[0].address = matrix;
    sources[1].address = line;
    uint64_t local[2], extents[2], strides[2], global[2];
    check(reshard_layout_local_shape(from, rank, 2, extents));
    check(reshard_layout_strides(from, rank, 2, strides));
    for (local[0] = 0; local[0] < extents[0]; local[0]++)
        for (local[1] = 0; local[1] < extents[1]; local[1]++) {
            check(reshard_layout_global_index(from, rank, 2, local, global));
            matrix[local[0] * strides[0] + local[1] * strides[1]] = value(global[0], global[1]);
        }
    check(reshard_layout_local_shape(line_from, rank, 1, extents));
    for (local[0] = 0; local[0] < extents[0]; local[0]++) {
        check(reshard_layout_global_index(line_from, rank, 1, local, global));
        line[local[0]] = (int)global[0];
    }

    reshard_engine *engine;
    check(reshard_engine_mpi(plan, MPI_COMM_WORLD, "deadline=60", &engine));
    reshard_array arrays[2] = {{0}, {0}};
    for (int array = 0; array < 2; array++) {
        arrays[array].from = &sources[array];
        arrays[array].from_count = 1;
        arrays[array].to = &targets[array];
        arrays[array].to_count = 1;
    }
    reshard_run *run;
    int done = 0;
    long meanwhile = 0;
    check(reshard_engine_start_arrays(engine, arrays, 2, &run));
    while (!done) {
        meanwhile++; /* compute something else */
        check(reshard_run_test(run, &done));
    }
    reshard_run_free(run);

    double *moved = targets[0].address;
    for (uint64_t column = 0; column < 200; column++)
        for (uint64_t row = 0; row < ROWS; row++)
            if (moved[row + column * ROWS] != value(row, column + 200 * rank)) {
                fprintf(stderr, "rank %d: wrong at %d, %d\n", me, (int)row, (int)column);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
    int *dealt = targets[1].address;
    for (size_t item = 0; item < targets[1].bytes / sizeof(int); item++)
        if (dealt[item] != (int)(3 * item + rank)) {
            fprintf(stderr, "rank %d: wrong number %d\n", me, (int)item);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }

    const char *mover;
    check(reshard_engine_mover(engine, &mover));
    if (me == 0) printf("moved by %s, meanwhile counted to %ld\n", mover, meanwhile);
    reshard_engine_free(engine);
    reshard_plan_free(plan);
    reshard_layout_free(from);
    reshard_layout_free(to);
    reshard_layout_free(line_from);
    reshard_layout_free(line_to);
    free(matrix);
    free(line);
    free(moved);
    free(dealt);
    MPI_Finalize();
    return 0;
}
