/* All ranks in one process, without MPI: a matrix moves from blocks of 64 x 64 on a 2 x 2 grid to columns on 3 ranks, is added to what is
 * there, and loads are balanced along a ring.
 *
 *     cc threads.c $(pkg-config --cflags --libs reshard) -o threads && ./threads
 */
#include <reshard.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 300, COLUMNS = 200 };

static void check(int code)
{
    if (code != RESHARD_OK) {
        fprintf(stderr, "reshard: %s (%s)\n", reshard_error_message(), reshard_error_name(code));
        exit(1);
    }
}

static double value(uint64_t row, uint64_t column)
{
    return 1000.0 * (double)row + (double)column;
}

/* Where an element is among the parts of all ranks. */
static double *at(const reshard_layout *layout, double **parts, uint64_t row, uint64_t column)
{
    uint64_t index[2] = {row, column}, rank, address;
    check(reshard_layout_locate(layout, 2, index, &rank, &address));
    return parts[rank] + address;
}

/* Memory for the part of a rank. */
static double *part_of(const reshard_layout *layout, uint64_t rank, size_t *bytes)
{
    uint64_t elements;
    check(reshard_layout_span(layout, rank, &elements));
    *bytes = elements * sizeof(double);
    return calloc(elements > 0 ? elements : 1, sizeof(double));
}

static void matrix(void)
{
    reshard_layout *from, *to;
    check(reshard_layout_parse("2x2/64x64 of 300x200", &from));
    uint64_t shape[2] = {ROWS, COLUMNS}, grid[2] = {1, 3}, blocks[2] = {ROWS, 67};
    check(reshard_layout_block_cyclic(2, shape, grid, blocks, NULL, RESHARD_ROW_MAJOR, RESHARD_ROW_MAJOR, &to));

    double *before[4], *after[3];
    reshard_source sources[4];
    reshard_target targets[3];
    for (uint64_t rank = 0; rank < 4; rank++) {
        before[rank] = part_of(from, rank, &sources[rank].bytes);
        sources[rank].address = before[rank];
    }
    for (uint64_t rank = 0; rank < 3; rank++) {
        after[rank] = part_of(to, rank, &targets[rank].bytes);
        targets[rank].address = after[rank];
    }
    for (uint64_t row = 0; row < ROWS; row++)
        for (uint64_t column = 0; column < COLUMNS; column++)
            *at(from, before, row, column) = value(row, column);

    reshard_plan *plan;
    reshard_engine *engine;
    check(reshard_plan_new(&plan));
    check(reshard_plan_add(plan, from, to, sizeof(double)));
    check(reshard_engine_threads(plan, NULL, &engine));

    reshard_array array = {0};
    array.from = sources;
    array.from_count = 4;
    array.to = targets;
    array.to_count = 3;
    check(reshard_engine_run_arrays(engine, &array, 1)); /* copied, */
    double alpha = 2.0, beta = -1.0;
    array.element_type = RESHARD_F64;
    array.alpha = &alpha;
    array.beta = &beta;
    check(reshard_engine_run_arrays(engine, &array, 1)); /* then 2 * source - destination: the same again */

    for (uint64_t row = 0; row < ROWS; row++)
        for (uint64_t column = 0; column < COLUMNS; column++)
            if (*at(to, after, row, column) != value(row, column)) {
                fprintf(stderr, "wrong at %d, %d\n", (int)row, (int)column);
                exit(1);
            }

    reshard_engine_free(engine);
    reshard_plan_free(plan);
    reshard_layout_free(from);
    reshard_layout_free(to);
    for (int rank = 0; rank < 4; rank++) free(before[rank]);
    for (int rank = 0; rank < 3; rank++) free(after[rank]);
}

/* Items in order: 10, 20 and 30 of them become 20 each. */
static void ring(void)
{
    uint64_t loads[3] = {10, 20, 30}, targets[3] = {20, 20, 20};
    reshard_loads problem = {0};
    problem.processes = 3;
    problem.loads = loads;
    problem.targets = targets;
    problem.item_bytes = sizeof(int);
    reshard_ring *ring;
    check(reshard_ring_threads(&problem, "ordered", &ring));
    int *items[3], next = 0;
    reshard_target parts[3];
    for (int process = 0; process < 3; process++) {
        size_t room;
        check(reshard_ring_room(ring, (uint64_t)process, &room));
        parts[process].bytes = room * sizeof(int);
        parts[process].address = items[process] = malloc(parts[process].bytes);
        for (uint64_t item = 0; item < loads[process]; item++) items[process][item] = next++;
    }
    check(reshard_ring_run(ring, parts, 3));
    for (int process = 0; process < 3; process++) {
        for (int item = 0; item < 20; item++)
            if (items[process][item] != 20 * process + item) {
                fprintf(stderr, "wrong item %d of process %d\n", item, process);
                exit(1);
            }
        free(items[process]);
    }
    reshard_ring_free(ring);
}

int main(void)
{
    matrix();
    ring();
    /* An error is a code and a sentence. */
    reshard_layout *layout;
    if (reshard_layout_parse("2x2/64y64 of 300x200", &layout) != RESHARD_ERROR_NOTATION || layout != NULL) return 1;
    printf("moved; and \"2x2/64y64 of 300x200\" is refused: %s\n", reshard_error_message());
    return 0;
}
