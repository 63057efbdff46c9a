/* What can go wrong between processes, seen from C: every rank gets a code and a sentence, nobody waits for ever, and what was not wrong goes on.
 * Run with 4 ranks by xtask/tests/installed.rs. */
#include <mpi.h>
#include <reshard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, LENGTH = 1000 };

static int me = -1;

static void fail(int line, const char *what)
{
    fprintf(stderr, "rank %d, line %d: %s: %s\n", me, line, what, reshard_error_message());
    exit(1);
}

#define DONE(call) do { if ((call) != RESHARD_OK) fail(__LINE__, #call); } while (0)
#define TRUE(condition) do { if (!(condition)) fail(__LINE__, #condition); } while (0)
#define REFUSED(call, code, says) do { int got = (call); \
    if (got != (code)) { fprintf(stderr, "code %d\n", got); fail(__LINE__, #call); } \
    if (!strstr(reshard_error_message(), (says))) fail(__LINE__, "does not say " says); } while (0)

/* A vector of doubles, from blocks on all ranks to one element after the other on all. */
static reshard_plan *plan_of(uint64_t length)
{
    reshard_layout *from, *to;
    reshard_plan *plan;
    DONE(reshard_layout_parse_over("(block) on 4", 1, &length, &from));
    DONE(reshard_layout_parse_over("(cyclic) on 4", 1, &length, &to));
    DONE(reshard_plan_new(&plan));
    DONE(reshard_plan_add(plan, from, to, sizeof(double)));
    reshard_layout_free(from);
    reshard_layout_free(to);
    return plan;
}

static reshard_engine *engine_on(MPI_Comm comm, const char *options)
{
    reshard_engine *engine;
    reshard_plan *plan = plan_of(LENGTH);
    DONE(reshard_engine_mpi(plan, comm, options, &engine));
    reshard_plan_free(plan);
    return engine;
}

/* Parts of one run, with values that say which run it is. */
typedef struct { double from[LENGTH / RANKS], to[LENGTH / RANKS]; } parts;

static void fill(parts *mine, int number)
{
    for (int k = 0; k < LENGTH / RANKS; k++) {
        mine->from[k] = number * 1e6 + me * (LENGTH / RANKS) + k;
        mine->to[k] = -1;
    }
}

static int is_moved(const parts *mine, int number)
{
    for (int k = 0; k < LENGTH / RANKS; k++)
        if (mine->to[k] != number * 1e6 + RANKS * k + me) return 0;
    return 1;
}

static int run(reshard_engine *engine, parts *mine)
{
    return reshard_engine_run(engine, mine->from, sizeof mine->from, mine->to, sizeof mine->to);
}

static int start(reshard_engine *engine, parts *mine, reshard_run **running)
{
    return reshard_engine_start(engine, mine->from, sizeof mine->from, mine->to, sizeof mine->to, running);
}

/* Two runs in flight, tested in another order on every other rank; then waited for together. */
static void in_flight(void)
{
    static parts a, b;
    reshard_engine *engines[2] = {engine_on(MPI_COMM_WORLD, NULL), engine_on(MPI_COMM_WORLD, "mover=messages")};
    for (int number = 1; number < 20; number++) {
        reshard_run *runs[2];
        int first = (me + number) % 2, done = 0;
        fill(&a, number);
        fill(&b, 100 + number);
        DONE(start(engines[first], first ? &b : &a, &runs[first]));
        DONE(start(engines[1 - first], first ? &a : &b, &runs[1 - first]));
        REFUSED(run(engines[0], &a), RESHARD_ERROR_BUSY, "run in flight");
        const char *mover;
        REFUSED(reshard_engine_mover(engines[0], &mover), RESHARD_ERROR_BUSY, "run in flight");
        reshard_run *other;
        REFUSED(start(engines[1], &b, &other), RESHARD_ERROR_BUSY, "run in flight");
        TRUE(other == NULL);
        if (number % 2) {
            DONE(reshard_run_wait_all(runs, 2));
        } else {
            while (!done) {
                int one;
                DONE(reshard_run_test(runs[0], &done));
                DONE(reshard_run_test(runs[1], &one));
                done &= one;
            }
        }
        TRUE(is_moved(&a, number) && is_moved(&b, 100 + number));
        DONE(reshard_run_wait(runs[0]));
        reshard_run_free(runs[1]);
        reshard_run_free(runs[0]);
    }
    DONE(run(engines[0], &a));
    reshard_engine_free(engines[0]);
    reshard_engine_free(engines[1]);
}

/* Freed in any order: the engine first, or the run while it is in flight. */
static void freed(void)
{
    static parts a, b;
    fill(&a, 1);
    fill(&b, 2);
    reshard_engine *first = engine_on(MPI_COMM_WORLD, NULL), *second = engine_on(MPI_COMM_WORLD, NULL);
    reshard_run *run_a, *run_b;
    DONE(start(first, &a, &run_a));
    DONE(start(second, &b, &run_b));
    reshard_engine_free(first);
    DONE(reshard_run_wait(run_a));
    TRUE(is_moved(&a, 1));
    reshard_run_free(run_a);
    reshard_run_free(run_b); /* waits */
    TRUE(is_moved(&b, 2));
    fill(&b, 3);
    DONE(run(second, &b));
    TRUE(is_moved(&b, 3));
    reshard_engine_free(second);

    /* A communicator that is freed before its engine. */
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    reshard_engine *engine = engine_on(comm, NULL);
    MPI_Comm_free(&comm);
    fill(&a, 4);
    DONE(run(engine, &a));
    TRUE(is_moved(&a, 4));
    reshard_engine_free(engine);
}

/* What one rank gives wrong when an engine is made: all are told, and the next one is made. */
static void disagreement(void)
{
    reshard_engine *engine;
    reshard_plan *plan = plan_of(LENGTH), *longer = plan_of(me == 1 ? LENGTH + 4 : LENGTH), *empty;
    DONE(reshard_plan_new(&empty));
    REFUSED(reshard_engine_mpi(me == 1 ? NULL : plan, MPI_COMM_WORLD, NULL, &engine), RESHARD_ERROR_MISMATCH,
            "rank 1: `plan` was given as a null pointer");
    TRUE(engine == NULL);
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, me == 2 ? "mover=pigeon" : "", &engine), RESHARD_ERROR_MISMATCH,
            "rank 2: there is no mover `pigeon`");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, me == 3 ? "deadline=soon" : "", &engine), RESHARD_ERROR_MISMATCH,
            "rank 3: \"deadline=soon\" was given as an option; deadline is a number of seconds above 0");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, "deadline=0", &engine), RESHARD_ERROR_NOTATION, "above 0");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, "strategy=hope", &engine), RESHARD_ERROR_NOTATION, "hope");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, "threads=4", &engine), RESHARD_ERROR_NOTATION, "is no option");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, "", me == 0 ? NULL : &engine), RESHARD_ERROR_MISMATCH,
            "rank 0: `engine` was given as a null pointer");
    REFUSED(reshard_engine_mpi(longer, MPI_COMM_WORLD, NULL, &engine), RESHARD_ERROR_MISMATCH, "1004");
    REFUSED(reshard_engine_mpi(me == 1 ? empty : plan, MPI_COMM_WORLD, NULL, &engine), RESHARD_ERROR_MISMATCH,
            "the plan has no array");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, me ? "mover=messages" : "mover=private", &engine),
            RESHARD_ERROR_MISMATCH, "the mover");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, "mover=shared", &engine), RESHARD_ERROR_UNSUPPORTED, "shared");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_WORLD, "memory=1", &engine), RESHARD_ERROR_MEMORY, "byte");
    REFUSED(reshard_engine_mpi(plan, MPI_COMM_NULL, NULL, &engine), RESHARD_ERROR_MISMATCH, "MPI_COMM_NULL");
    MPI_Comm two;
    MPI_Comm_split(MPI_COMM_WORLD, me / 2, 0, &two);
    REFUSED(reshard_engine_mpi(plan, two, NULL, &engine), RESHARD_ERROR_OUT_OF_RANGE, "the plan has a rank 3");
    MPI_Comm_free(&two);
#ifdef OPEN_MPI
    REFUSED(reshard_engine_fortran(plan, 123456, NULL, &engine), RESHARD_ERROR_MISMATCH, "no communicator");
#endif
    TRUE(engine == NULL);
    reshard_plan_free(plan);
    reshard_plan_free(longer);
    reshard_plan_free(empty);
}

/* What one rank gives wrong in a run: the ranks that need it are told, that engine is over, and others go on. */
static void wrong_runs(void)
{
    static parts mine;
    reshard_engine *other = engine_on(MPI_COMM_WORLD, NULL);
    for (int fault = 0; fault < 5; fault++) {
        reshard_engine *engine = engine_on(MPI_COMM_WORLD, fault % 2 ? "mover=messages deadline=20" : "deadline=20");
        reshard_array array = {0};
        reshard_source sources[2] = {{mine.from, sizeof mine.from}, {mine.from, sizeof mine.from}};
        reshard_target target = {mine.to, sizeof mine.to};
        double alpha = 2;
        array.from = sources;
        array.from_count = 1;
        array.to = &target;
        array.to_count = 1;
        fill(&mine, fault);
        int code = RESHARD_ERROR_MISMATCH;
        double begin = MPI_Wtime();
        if (me == 2) {
            if (fault == 0) code = RESHARD_ERROR_ARGUMENT, array.element_type = 77;
            if (fault == 1) sources[0].bytes = 8;
            if (fault == 2) array.from_count = 2;
            if (fault == 3) sources[0].address = NULL;
            if (fault == 4) code = RESHARD_ERROR_ARGUMENT, array.alpha = &alpha;
            REFUSED(reshard_engine_run_arrays(engine, &array, 1), code, "");
        } else {
            /* Every rank needs something of every other here. */
            REFUSED(reshard_engine_run_arrays(engine, &array, 1), RESHARD_ERROR_EXTERNAL, "rank 2");
        }
        TRUE(MPI_Wtime() - begin < 15);
        REFUSED(run(engine, &mine), RESHARD_ERROR_EXTERNAL, "");
        reshard_run *running;
        REFUSED(start(engine, &mine, &running), RESHARD_ERROR_EXTERNAL, "");
        TRUE(running == NULL);
        reshard_engine_free(engine);
        fill(&mine, 50 + fault);
        DONE(run(other, &mine));
        TRUE(is_moved(&mine, 50 + fault));
    }
    /* A rank that does not come: named after the deadline, also by a run that is asked twice. */
    reshard_engine *engine = engine_on(MPI_COMM_WORLD, "mover=messages deadline=2");
    reshard_engine *forgotten = engine_on(MPI_COMM_WORLD, "mover=messages deadline=2");
    if (me == 3) {
        sleep(7);
    } else {
        reshard_run *running;
        int done = 1, code;
        DONE(start(engine, &mine, &running));
        do code = reshard_run_test(running, &done); while (code == RESHARD_OK && !done);
        TRUE(code == RESHARD_ERROR_EXTERNAL && done);
        REFUSED(reshard_run_wait(running), RESHARD_ERROR_EXTERNAL, "rank");
        REFUSED(reshard_run_test(running, &done), RESHARD_ERROR_EXTERNAL, "rank");
        REFUSED(reshard_run_wait_all(&running, 1), RESHARD_ERROR_EXTERNAL, "rank");
        reshard_run_free(running);
        /* One that is freed while it is in flight says nothing; its engine does. */
        DONE(start(forgotten, &mine, &running));
        reshard_run_free(running);
        REFUSED(run(forgotten, &mine), RESHARD_ERROR_EXTERNAL, "rank");
    }
    reshard_engine_free(forgotten);
    reshard_engine_free(engine);
    MPI_Barrier(MPI_COMM_WORLD);
    fill(&mine, 99);
    DONE(run(other, &mine));
    TRUE(is_moved(&mine, 99));
    reshard_engine_free(other);
}

/* Rings: right, and wrong on one rank. */
static void rings(void)
{
    uint64_t loads[RANKS] = {8, 0, 0, 0}, targets[RANKS] = {2, 2, 2, 2};
    reshard_loads stated = {RANKS, loads, targets, NULL, NULL, sizeof(int)};
    reshard_ring *ring;
    size_t room;
    int items[16] = {0, 1, 2, 3, 4, 5, 6, 7};
    reshard_target part = {items, sizeof items};
    DONE(reshard_ring_mpi(&stated, MPI_COMM_WORLD, "ordered", &ring));
    DONE(reshard_ring_room(ring, (uint64_t)me, &room));
    TRUE(room >= 2 && room <= 16);
    DONE(reshard_ring_run(ring, &part, 1));
    TRUE(items[0] == 2 * me && items[1] == 2 * me + 1);
    reshard_ring_free(ring);
    REFUSED(reshard_ring_mpi(me == 1 ? NULL : &stated, MPI_COMM_WORLD, NULL, &ring), RESHARD_ERROR_MISMATCH,
            "rank 1: `loads` was given as a null pointer");
    TRUE(ring == NULL);
    DONE(reshard_ring_mpi(&stated, MPI_COMM_WORLD, "deadline=20", &ring));
    double begin = MPI_Wtime();
    int code = reshard_ring_run(ring, me == 1 ? NULL : &part, 1);
    TRUE(me == 1 ? code == RESHARD_ERROR_ARGUMENT : code == RESHARD_OK || code == RESHARD_ERROR_EXTERNAL);
    TRUE(me != 0 || code == RESHARD_ERROR_EXTERNAL);
    TRUE(MPI_Wtime() - begin < 15);
    reshard_ring_free(ring);
}

/* Sides of couplings: what is wrong on one rank is an error of all, at once. */
static void couplings(void)
{
    double part[LENGTH / RANKS] = {0}, begin = MPI_Wtime();
    uint64_t length = LENGTH;
    reshard_layout *blocks;
    reshard_publisher *publisher;
    reshard_subscriber *subscriber;
    size_t array, complete;
    reshard_source mine = {part, sizeof part};
    int code;
    DONE(reshard_layout_parse_over("(block) on 4", 1, &length, &blocks));
    code = reshard_publisher_mpi(MPI_COMM_WORLD, me == 1 ? "deadlin=20" : "deadline=20", &publisher);
    TRUE(publisher == NULL);
    TRUE(code == RESHARD_ERROR_NOTATION && strstr(reshard_error_message(), "deadlin=20"));
    code = reshard_publisher_mpi(MPI_COMM_WORLD, "deadline=20", me == 2 ? NULL : &publisher);
    TRUE(me == 2 ? code == RESHARD_ERROR_ARGUMENT : code == RESHARD_ERROR_MISMATCH);
    code = reshard_publisher_mpi(MPI_COMM_WORLD, me == 3 ? "program=a partner=b" : NULL, &publisher);
    TRUE(code == RESHARD_ERROR_MISMATCH && strstr(reshard_error_message(), "program="));
    code = reshard_subscriber_mpi(MPI_COMM_WORLD, me == 0 ? "whole" : NULL, &subscriber);
    TRUE(code == RESHARD_ERROR_NOTATION && subscriber == NULL);

    DONE(reshard_publisher_mpi(MPI_COMM_WORLD, "deadline=20", &publisher));
    DONE(reshard_publish(publisher, "t", blocks, "f64", &array));
    code = reshard_publisher_open(publisher, me == 2 ? NULL : "faults.meet");
    TRUE(me == 2 ? code == RESHARD_ERROR_ARGUMENT : code == RESHARD_ERROR_MISMATCH);
    TRUE(strstr(reshard_error_message(), "`meeting` was given as a null pointer"));
    DONE(reshard_publisher_open(publisher, "faults.meet"));
    code = reshard_put(publisher, array, 0, NULL, 0, me == 3 ? NULL : &mine, 1);
    TRUE(me == 3 ? code == RESHARD_ERROR_ARGUMENT : code == RESHARD_ERROR_MISMATCH);
    code = reshard_put(publisher, me == 0 ? 7 : array, 0, NULL, 0, &mine, 1);
    TRUE(me == 0 ? code == RESHARD_ERROR_ARGUMENT : code == RESHARD_ERROR_MISMATCH);
    TRUE(strstr(reshard_error_message(), "array 7 was given"));
    DONE(reshard_put(publisher, array, 0, NULL, 0, &mine, 1));
    DONE(reshard_publisher_finish(publisher, &complete));
    reshard_publisher_free(publisher);

    DONE(reshard_subscriber_mpi(MPI_COMM_WORLD, "deadline=20", &subscriber));
    DONE(reshard_subscribe(subscriber, "t", blocks, "f64", NULL, NULL, &array));
    code = reshard_subscriber_connect(subscriber, me == 2 ? NULL : "faults.meet");
    TRUE(me == 2 ? code == RESHARD_ERROR_ARGUMENT : code == RESHARD_ERROR_MISMATCH);
    reshard_subscriber_free(subscriber);
    reshard_layout_free(blocks);
    TRUE(MPI_Wtime() - begin < 15);
}

int main(int argc, char **argv)
{
    reshard_engine *engine;
    reshard_plan *plan = plan_of(LENGTH);
    REFUSED(reshard_engine_fortran(plan, 0, NULL, &engine), RESHARD_ERROR_EXTERNAL, "MPI has not begun");
    TRUE(engine == NULL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    in_flight();
    freed();
    disagreement();
    wrong_runs();
    rings();
    couplings();

    /* What outlives MPI can be freed, and not be used. */
    static parts mine;
    engine = engine_on(MPI_COMM_WORLD, NULL);
    fill(&mine, 1);
    DONE(run(engine, &mine));
    TRUE(is_moved(&mine, 1));
    MPI_Finalize();
    REFUSED(run(engine, &mine), RESHARD_ERROR_EXTERNAL, "MPI has ended");
    reshard_engine_free(engine);
    REFUSED(reshard_engine_fortran(plan, 0, NULL, &engine), RESHARD_ERROR_EXTERNAL, "MPI has ended");
    reshard_plan_free(plan);
    printf("rank %d: all of it\n", me);
    return 0;
}
