/* Random programs on many communicators, seen from C: duplicates, groups, the process alone; engines and rings on them, runs in flight, refused and
 * freed, communicators freed before and after their engines, and some of all that outlives MPI. Run by xtask/tests/installed.rs:
 *
 *     mpirun -n 3 programs SEED FIRST COUNT
 *
 * All ranks draw the same numbers of `all`; of `own` each draws its own. */
#include <mpi.h>
#include <reshard.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16, MOST_GROUPS = 16, MOST_WORKS = 64, MOST_LEFT = 4096 };

typedef struct { uint64_t state; } numbers;

/* Of a matrix in a grid of processes: how many rows and columns, how many processes along each, and the lengths of a block. */
typedef struct { int elems[2], procs[2], block[2]; } dealt;

/* A communicator that this rank is in, one of several that a split has made; `aside` is for the test itself. */
typedef struct { MPI_Comm comm, aside; int here, open, predefined, rank, size, members[MOST_RANKS]; } group;

typedef struct {
    int group, name;
    dealt from, to;
    size_t from_bytes, to_bytes;
    double *source, *target;
    reshard_engine *engine;
    reshard_run *run;
} work;

static int me, ranks;
static long seed, number;
static numbers all, own;
static group groups[MOST_GROUPS];
static work works[MOST_WORKS], left[MOST_LEFT];
static int group_count, work_count, left_count, names, runs, refused, freed;

static void fail(int line, const char *what)
{
    fprintf(stderr, "rank %d, line %d, `programs %ld %ld 1`: %s: %s\n", me, line, seed, number, what, reshard_error_message());
    exit(1);
}

#define DONE(call) do { if ((call) != RESHARD_OK) fail(__LINE__, #call); } while (0)
#define TRUE(condition) do { if (!(condition)) fail(__LINE__, #condition); } while (0)
#define SAYS(words) TRUE(strstr(reshard_error_message(), (words)))

static int draw(numbers *from, int count)
{
    uint64_t z = from->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (int)((z ^ z >> 31) % (uint64_t)count);
}

/* Numbers that the ranks of a group share; groups of other sizes do other things with them. */
static numbers drawn(void)
{
    return (numbers){(uint64_t)draw(&all, 1 << 30)};
}

static dealt any_dealt(numbers *from, const int *elems, int size)
{
    dealt side = {{elems[0], elems[1]}, {1, 1}, {1 + draw(from, 9), 1 + draw(from, 9)}};
    side.procs[0] = 1 + draw(from, size);
    side.procs[1] = 1 + draw(from, size / side.procs[0]);
    return side;
}

/* Deals a matrix out, element by element: writes those of a rank, or counts those that are wrong. */
static int deal(const dealt *side, int rank, double salt, double *part, int writes)
{
    int wrong = 0, of[2] = {rank / side->procs[1], rank % side->procs[1]};
    if (of[0] >= side->procs[0]) return 0;
    for (int col = 0, q = 0, last = 0; col < side->elems[1]; col++) {
        if (last == side->block[1]) last = 0, q = q + 1 == side->procs[1] ? 0 : q + 1;
        last++;
        for (int row = 0, p = 0, here = 0; row < side->elems[0]; row++) {
            if (here == side->block[0]) here = 0, p = p + 1 == side->procs[0] ? 0 : p + 1;
            here++;
            if (p != of[0] || q != of[1]) continue;
            if (writes) *part = salt + 1000 * col + row;
            wrong += *part++ != salt + 1000 * col + row;
        }
    }
    return wrong;
}

static reshard_layout *layout_of(const dealt *side)
{
    char text[200];
    reshard_layout *layout;
    snprintf(text, sizeof text, "%dx%d/%dx%d of %dx%d", side->procs[0], side->procs[1], side->block[0], side->block[1],
             side->elems[0], side->elems[1]);
    DONE(reshard_layout_parse(text, &layout));
    return layout;
}

static reshard_plan *plan_of(const dealt *from, const dealt *to)
{
    reshard_plan *plan;
    reshard_layout *sides[2] = {layout_of(from), layout_of(to)};
    DONE(reshard_plan_new(&plan));
    DONE(reshard_plan_add(plan, sides[0], sides[1], sizeof(double)));
    reshard_layout_free(sides[0]);
    reshard_layout_free(sides[1]);
    return plan;
}

/* A communicator between two groups: the library refuses it, and everything goes on. */
static void between(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm half, both;
    dealt one = {{4, 4}, {1, 1}, {4, 4}};
    reshard_engine *engine;
    reshard_plan *plan = plan_of(&one, &one);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (size > 1) {
        int side = 2 * rank >= size;
        MPI_Comm_split(comm, side, 0, &half);
        MPI_Intercomm_create(half, 0, comm, side ? 0 : (size + 1) / 2, 7, &both);
        TRUE(reshard_engine_mpi(plan, both, NULL, &engine) == RESHARD_ERROR_MISMATCH && !engine);
        SAYS("between two groups");
        MPI_Comm_free(&half);
        MPI_Comm_free(&both);
        refused++;
    }
    reshard_plan_free(plan);
}

static void make_group(void)
{
    int colors[MOST_RANKS], keys[MOST_RANKS], kind = draw(&all, 10), parent = draw(&all, group_count + 1) - 1;
    MPI_Comm from = MPI_COMM_WORLD;
    group made = {.comm = MPI_COMM_NULL, .open = 1, .predefined = kind < 2};
    for (int rank = 0; rank < ranks; rank++) {
        colors[rank] = draw(&all, 6) ? draw(&all, 3) : MPI_UNDEFINED;
        keys[rank] = draw(&all, 9);
    }
    if (group_count == MOST_GROUPS) return;
    if (parent >= 0) from = groups[parent].here && groups[parent].open ? groups[parent].comm : MPI_COMM_NULL;
    if (kind == 0) made.comm = MPI_COMM_WORLD;
    else if (kind == 1) made.comm = MPI_COMM_SELF;
    else if (kind == 2) MPI_Comm_dup(MPI_COMM_SELF, &made.comm);
    else if (from != MPI_COMM_NULL && kind == 3) between(from);
    else if (from != MPI_COMM_NULL && kind < 6) MPI_Comm_dup(from, &made.comm);
    else if (from != MPI_COMM_NULL) MPI_Comm_split(from, colors[me], keys[me], &made.comm);
    made.here = made.comm != MPI_COMM_NULL;
    if (made.here) {
        MPI_Comm_dup(made.comm, &made.aside);
        MPI_Comm_rank(made.aside, &made.rank);
        MPI_Comm_size(made.aside, &made.size);
        MPI_Allgather(&me, 1, MPI_INT, made.members, 1, MPI_INT, made.aside);
    }
    groups[group_count++] = made;
}

static void free_group(int at)
{
    group *one = &groups[at];
    if (!one->here || !one->open || one->predefined) return;
    MPI_Comm_free(&one->comm);
    one->open = 0;
    freed++;
}

static void make_work(void)
{
    static const char *const movers[] = {NULL, "mover=private", "mover=cma", "mover=messages", "mover=mixed", "mover=lockstep"};
    int at = draw(&all, group_count), name = names++;
    numbers shared = drawn();
    work made = {.group = at, .name = name};
    if (!groups[at].here || !groups[at].open || work_count == MOST_WORKS) return;
    int size = groups[at].size, odd = draw(&shared, size), is_odd = odd == groups[at].rank;
    int elems[2] = {1 + draw(&shared, 60), 1 + draw(&shared, 40)}, wrong = !draw(&shared, 4) && size > 1;
    made.from = any_dealt(&shared, elems, size);
    made.to = any_dealt(&shared, elems, size);
    const char *mover = movers[draw(&shared, 6)];
    reshard_plan *plan = plan_of(&made.from, &made.to);
    DONE(reshard_plan_source_bytes(plan, 0, (uint64_t)groups[at].rank, &made.from_bytes));
    DONE(reshard_plan_target_bytes(plan, 0, (uint64_t)groups[at].rank, &made.to_bytes));
    if (wrong) {
        char says[40];
        snprintf(says, sizeof says, "rank %d", odd);
        TRUE(reshard_engine_mpi(is_odd ? NULL : plan, groups[at].comm, mover, &made.engine) == RESHARD_ERROR_MISMATCH);
        SAYS(says);
        refused++;
    }
    int code = reshard_engine_mpi(plan, groups[at].comm, mover, &made.engine);
    if (code == RESHARD_ERROR_UNSUPPORTED) code = reshard_engine_mpi(plan, groups[at].comm, NULL, &made.engine);
    DONE(code);
    reshard_plan_free(plan);
    made.source = malloc(made.from_bytes + 1);
    made.target = malloc(made.to_bytes + 1);
    works[work_count++] = made;
}

/* Frees an engine, or leaves it to be freed after the end of MPI. */
static void drop(int at)
{
    work gone = works[at];
    memmove(&works[at], &works[at + 1], (size_t)(--work_count - at) * sizeof(work));
    if (left_count < MOST_LEFT && !draw(&own, 8)) {
        left[left_count++] = gone;
        return;
    }
    reshard_engine_free(gone.engine);
    free(gone.source);
    free(gone.target);
}

/* Runs some of the engines, all in flight at once, begun and looked after in an order of this rank's own; perhaps one rank refuses one. */
static void play(void)
{
    int chosen[MOST_WORKS], count = 0, salt = 1 + draw(&all, 1 << 20), fault = draw(&all, 3) ? -1 : draw(&all, names + 1);
    int odd = draw(&all, ranks), kind = draw(&all, 2), frees = draw(&all, 3), makes = draw(&all, 3), some = draw(&all, 1 << 30);
    for (int at = 0; at < work_count; at++)
        if (works[at].name == fault || some >> works[at].name % 30 & 1) chosen[count++] = at;
    for (int k = 1; k < count; k++) {
        int other = draw(&own, k + 1), at = chosen[k];
        chosen[k] = chosen[other];
        chosen[other] = at;
    }
    for (int k = 0; k < count; k++) {
        work *one = &works[chosen[k]];
        int bad = one->name == fault && odd == me, shorter = bad && !kind && one->from_bytes > 0;
        deal(&one->from, groups[one->group].rank, salt + one->name, one->source, 1);
        memset(one->target, 0x5a, one->to_bytes);
        if (bad && !shorter) {
            TRUE(reshard_engine_refuse(one->engine, "on purpose") != RESHARD_OK);
            continue;
        }
        int code = reshard_engine_start(one->engine, one->source, one->from_bytes - (size_t)shorter, one->target, one->to_bytes, &one->run);
        if (one->name != fault) DONE(code);
        TRUE(!shorter || code == RESHARD_ERROR_MISMATCH || code == RESHARD_ERROR_EXTERNAL);
    }
    if (!frees) free_group(draw(&all, group_count));
    if (!makes) make_group();
    reshard_run *open[MOST_WORKS];
    for (int k = 0; k < count; k++) open[k] = works[chosen[k]].run;
    for (int looks = draw(&own, 40); looks > 0 && count > 0; looks--) {
        int k = draw(&own, count), done, code = open[k] ? reshard_run_test(open[k], &done) : RESHARD_OK;
        TRUE(code == RESHARD_OK || works[chosen[k]].name == fault);
    }
    TRUE(reshard_run_wait_all(open, (size_t)count) == RESHARD_OK || fault >= 0);
    for (int k = 0; k < count; k++) {
        work *one = &works[chosen[k]];
        int code = one->run ? reshard_run_wait(one->run) : RESHARD_ERROR_EXTERNAL;
        group *at = &groups[one->group];
        int may_fail = 0;
        for (int rank = 0; rank < at->size; rank++) may_fail |= at->members[rank] == odd && one->name == fault;
        TRUE(code == RESHARD_OK || may_fail);
        if (code == RESHARD_OK) TRUE(!deal(&one->to, at->rank, salt + one->name, one->target, 0));
        else if (one->run) SAYS("rank");
        runs += code == RESHARD_OK;
        reshard_run_free(one->run);
        one->run = NULL;
    }
    for (int at = work_count - 1; at >= 0; at--)
        if (works[at].name == fault) drop(at);
}

/* Items in order, passed on between neighbours. */
static void ring(void)
{
    int at = draw(&all, group_count), items[200], sum = 0, before = 0, first = 0;
    numbers shared = drawn();
    group *here = &groups[at];
    uint64_t loads[MOST_RANKS], targets[MOST_RANKS] = {0};
    reshard_ring *made;
    size_t room;
    if (!here->here || !here->open) return;
    for (int rank = 0; rank < here->size; rank++) {
        loads[rank] = (uint64_t)draw(&shared, 9);
        before += rank < here->rank ? (int)loads[rank] : 0;
        sum += (int)loads[rank];
    }
    for (int item = 0; item < sum; item++) targets[draw(&shared, here->size)]++;
    for (int rank = 0; rank < here->rank; rank++) first += (int)targets[rank];
    reshard_loads stated = {(size_t)here->size, loads, targets, NULL, NULL, sizeof(int)};
    DONE(reshard_ring_mpi(&stated, here->comm, "ordered", &made));
    DONE(reshard_ring_room(made, (uint64_t)here->rank, &room));
    TRUE(room <= 200);
    for (int item = 0; item < (int)loads[here->rank]; item++) items[item] = before + item;
    reshard_target part = {items, room * sizeof(int)};
    DONE(reshard_ring_run(made, &part, 1));
    for (int item = 0; item < (int)targets[here->rank]; item++) TRUE(items[item] == first + item);
    reshard_ring_free(made);
}

static void program(void)
{
    int keeps;
    all.state = (uint64_t)(seed * 10000 + number);
    own.state = all.state + ((uint64_t)(me + 1) << 32);
    group_count = names = 0;
    for (int count = 2 + draw(&all, 4); count > 0; count--) make_group();
    for (int count = 3 + draw(&all, 3); count > 0; count--) make_work();
    for (int count = 4 + draw(&all, 6); count > 0; count--) {
        switch (draw(&all, 8)) {
        case 0: make_group(); break;
        case 1: make_work(); break;
        case 2: free_group(draw(&all, group_count)); break;
        case 3: ring(); break;
        default: play();
        }
    }
    keeps = !draw(&all, 8);
    for (int at = 0; at < group_count; at++) {
        while (work_count > 0 && draw(&own, 2)) drop(draw(&own, work_count));
        if (keeps || !groups[at].here) continue;
        free_group(at);
        MPI_Comm_free(&groups[at].aside);
    }
    while (work_count > 0) drop(draw(&own, work_count));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    TRUE(argc == 4 && ranks <= MOST_RANKS);
    seed = atol(argv[1]);
    long first = atol(argv[2]), count = atol(argv[3]);
    for (number = first; number < first + count; number++) program();
    /* A run that nobody waits for before MPI ends. */
    int done;
    all.state = (uint64_t)seed;
    while (work_count == 0) {
        make_group();
        make_work();
        MPI_Allreduce(&work_count, &done, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        while (!done && work_count > 0) drop(0);
    }
    work *last = &works[0];
    DONE(reshard_engine_start(last->engine, last->source, last->from_bytes, last->target, last->to_bytes, &last->run));
    MPI_Finalize();
    TRUE(reshard_run_test(last->run, &done) == RESHARD_OK || strstr(reshard_error_message(), "rank") || strstr(reshard_error_message(), "MPI has ended"));
    if (seed % 2) reshard_run_free(last->run);
    reshard_engine_free(last->engine);
    for (int at = 0; at < left_count; at++) {
        TRUE(reshard_engine_run(left[at].engine, left[at].source, left[at].from_bytes, left[at].target, left[at].to_bytes) == RESHARD_ERROR_EXTERNAL);
        SAYS("MPI has ended");
        reshard_engine_free(left[at].engine);
    }
    printf("rank %d of %d: %ld programs: %d runs right, %d refused, %d communicators freed, %d left behind\n", me, ranks, count, runs,
           refused, freed, left_count);
    return 0;
}
