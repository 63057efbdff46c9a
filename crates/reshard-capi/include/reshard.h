// reshard moves distributed arrays between layouts: docs/c.md is the manual.
//
// Describe two layouts, add them to a plan, make an engine, run it as often as you like:
//
//     reshard_layout_parse("2x2/64x64 of 1000x800", &from);
//     reshard_layout_parse("1x4/32x32 of 1000x800", &to);
//     reshard_plan_new(&plan);
//     reshard_plan_add(plan, from, to, sizeof(double));
//     reshard_engine_mpi(plan, MPI_COMM_WORLD, NULL, &engine);
//     reshard_engine_run(engine, mine, mine_bytes, moved, moved_bytes);
//
// Every function that returns int returns RESHARD_OK (0) or a code; reshard_error_message() then has a sentence. Nothing is
// printed, nothing ends the program (but MPI does, if the program lets it, and is given a handle that is none). A place for a
// new object is null after an error. Objects are freed by the function that has free in its name, in any order; null
// is allowed there. An object is used by one thread at a time.
//
// Written from the sources of the library by cbindgen; do not change it by hand.

#ifndef RESHARD_H
#define RESHARD_H

#define RESHARD_VERSION "0.1.0"


#include <stddef.h>
#include <stdint.h>

// No error.
#define RESHARD_OK 0

// A text is no layout, the message says at which character; or a word of it is no option.
#define RESHARD_ERROR_NOTATION 1

// Two things that must fit together do not: dimensions, sizes, counts, orders; or what ranks were given differs.
#define RESHARD_ERROR_MISMATCH 2

// An index, rank or process lies outside its range.
#define RESHARD_ERROR_OUT_OF_RANGE 3

// A length, count or amount of work is larger than the library accepts (lengths: 2^62).
#define RESHARD_ERROR_TOO_LARGE 4

// The request makes sense, but is not supported.
#define RESHARD_ERROR_UNSUPPORTED 5

// More memory would be needed than is allowed or available.
#define RESHARD_ERROR_MEMORY 6

// Something failed while data was moving; the destination is only partly written.
#define RESHARD_ERROR_FAILED 7

// Something outside of the library failed or is missing: MPI, another rank.
#define RESHARD_ERROR_EXTERNAL 8

// The other job of a coupling is absent, gone or late, or wants something else.
#define RESHARD_ERROR_PARTNER 9

// An argument is a null pointer, or a number that stands for nothing.
#define RESHARD_ERROR_ARGUMENT 100

// The engine has a run in flight, or another thread is using it; wait for the run first.
#define RESHARD_ERROR_BUSY 101

// A mistake of the library itself. What it was asked for is not done, or partly; free its objects, or end the program.
#define RESHARD_ERROR_INTERNAL 102

// The last index runs fastest, as in C; of a process grid: ranks are numbered row by row ('R' of the BLACS).
#define RESHARD_ROW_MAJOR 1

// The first index runs fastest, as in Fortran; of a process grid: ranks are numbered column by column ('C' of the BLACS).
#define RESHARD_COL_MAJOR 2

// All of a window is moved.
#define RESHARD_ALL 0

// Of a matrix, what lies on and above a diagonal is moved.
#define RESHARD_UPPER 1

// Of a matrix, what lies on and below a diagonal is moved.
#define RESHARD_LOWER 2

// Elements of any kind: copied bit for bit.
#define RESHARD_BITS 0

// Elements are of type float; they can be scaled.
#define RESHARD_F32 1

// Elements are of type double; they can be scaled.
#define RESHARD_F64 2

// Elements are complex numbers of two floats, the real part first; they can be scaled and conjugated.
#define RESHARD_COMPLEX_F32 3

// Elements are complex numbers of two doubles, the real part first; they can be scaled and conjugated.
#define RESHARD_COMPLEX_F64 4

// An engine: a plan, and all that it needs to be run any number of times. Free it with `reshard_engine_free`.
typedef struct reshard_engine reshard_engine;

// A layout: which rank owns which element of an array of 1 to 8 dimensions, and where in its memory. Indices count from 0,
// sizes and addresses are in elements, not bytes. Free it with `reshard_layout_free`; plans keep copies of their own.
typedef struct reshard_layout reshard_layout;

// A plan: the arrays that a run moves, in the order in which they were added. Free it with `reshard_plan_free`; engines
// keep what they need.
typedef struct reshard_plan reshard_plan;

// A producer: it publishes arrays under names, and puts a step of one whenever it has one; a `reshard_subscriber` of another job gets
// them, in a layout of its own. docs/coupling.md says how jobs meet, and what happens when one fails. Free it with `reshard_publisher_free`.
typedef struct reshard_publisher reshard_publisher;

// A ring: process i has loads[i] items and should have targets[i], and only neighbours exchange items. Made once, run any
// number of times. Free it with `reshard_ring_free`.
typedef struct reshard_ring reshard_ring;

// A run in flight. Its parts stay where they are, nobody writes to the sources, and nobody uses the destinations, until it is
// over. Free it with `reshard_run_free`, before or after its engine.
typedef struct reshard_run reshard_run;

// A consumer: it asks for arrays of another job in layouts of its own, and gets every step. Free it with `reshard_subscriber_free`.
typedef struct reshard_subscriber reshard_subscriber;

// Which part of the source moves, and where to in the destination. All null and 0 means: all of it, in the same place.
typedef struct reshard_window {
    // How many numbers each list below has: the dimensions of the arrays. 0 if all are null.
    size_t dims;
    // The shape of the window in the source's order of axes; null: the shape of the source.
    const uint64_t *shape;
    // Where it begins in the source; null: at the beginning.
    const uint64_t *from;
    // Where it begins in the destination, in the destination's order of axes; null: at the beginning.
    const uint64_t *to;
    // Destination axis j takes source axis axes[j]: {1, 0} transposes a matrix. Null: axes stay as they are.
    const size_t *axes;
    // RESHARD_ALL, RESHARD_UPPER or RESHARD_LOWER: of a matrix, only a triangle of the window.
    int triangle;
    // The diagonal that ends the triangle: 0 is the main one, 1 the one above it, -1 the one below.
    int64_t diagonal;
} reshard_window;

// Memory that a run reads: the source part of one rank.
typedef struct reshard_source {
    // Null where there are no elements.
    const void *address;
    // How many bytes there are: at least what the part spans.
    size_t bytes;
} reshard_source;

// Memory that a run writes: the destination part of one rank.
typedef struct reshard_target {
    // Null where there are no elements.
    void *address;
    // How many bytes there are: at least what the part spans.
    size_t bytes;
} reshard_target;

// One array of a run. With an engine of threads it has the parts of all ranks of its layouts, by ascending rank; between
// processes that of this rank alone, or none if it has none.
//
// A source and a destination may be the same memory, or overlap: then the source is copied when the run begins. No two
// destinations may have an element in common, which is refused; they may interleave, as blocks of one matrix do.
//
// With type 0 (RESHARD_BITS) elements are copied as they are, and alpha, beta and conjugate must be null and 0. With a type of numbers
// the destination becomes alpha * source + beta * destination; alpha and beta point to one number of that type each, and null
// means 1 for alpha and 0 for beta. A beta of 0 does not read the destination. All ranks must give the same alpha and beta.
typedef struct reshard_array {
    // The source parts.
    const struct reshard_source *from;
    // How many there are.
    size_t from_count;
    // The destination parts.
    const struct reshard_target *to;
    // How many there are.
    size_t to_count;
    // RESHARD_BITS, RESHARD_F32, RESHARD_F64, RESHARD_COMPLEX_F32 or RESHARD_COMPLEX_F64.
    int element_type;
    // Not 0: the conjugate of the source is taken.
    int conjugate;
    // The factor of the source; null: 1.
    const void *alpha;
    // The factor of the destination; null: 0.
    const void *beta;
} reshard_array;

// The loads of a ring.
typedef struct reshard_loads {
    // How many processes the ring has.
    size_t processes;
    // How many items each has.
    const uint64_t *loads;
    // How many items each should have; as many in all.
    const uint64_t *targets;
    // What an item takes from process i to i + 1, in any unit; null: 1.
    const uint64_t *right;
    // What an item takes from process i to i - 1; null: 1.
    const uint64_t *left;
    // Bytes of an item.
    size_t item_bytes;
} reshard_loads;

// What is known of a step.
typedef struct reshard_step {
    // The producer's number of it.
    uint64_t number;
    // How many steps of the array were dropped since the last one.
    uint64_t dropped;
    // What the producer says of it: so many bytes, which stay until the next call with this consumer.
    const uint8_t *header;
    // How many bytes.
    size_t header_bytes;
} reshard_step;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The sentence that belongs to the last call that failed on this thread; an empty string if none has. It stays until
// another call fails on this thread: calls that succeed, and all that free something, leave it alone.
const char *reshard_error_message(void);

// The name of a code, as in the JSON of the program `reshard`: "ok", "notation", "mismatch", ...; "unknown" if there is no
// such code. Never null.
const char *reshard_error_name(int code);

// The version of the library that is loaded, such as "0.1.0". `RESHARD_VERSION` is that of the header.
const char *reshard_version(void);

// A layout from one line of notation, such as "2x2/64x64 of 1000x800": a grid of 2 x 2 ranks, blocks of 64 x 64. Parts are
// column-major unless the text has `memory=row`.
int reshard_layout_parse(const char *notation,
                         struct reshard_layout **layout);

// As `reshard_layout_parse`, with the shape in numbers: the text is without "of", such as "(block, *) on 4 memory=row".
int reshard_layout_parse_over(const char *notation,
                              size_t dims,
                              const uint64_t *shape,
                              struct reshard_layout **layout);

// A block-cyclic layout from numbers, `dims` of each: the array's shape, the process grid, the blocks, and the process of the
// grid that has the first block (null: process 0 everywhere). Ranks 0, 1, ... are numbered by `rank_order`, parts lie in
// memory by `memory_order`: RESHARD_ROW_MAJOR or RESHARD_COL_MAJOR.
int reshard_layout_block_cyclic(size_t dims,
                                const uint64_t *shape,
                                const uint64_t *grid,
                                const uint64_t *blocks,
                                const uint64_t *first,
                                int rank_order,
                                int memory_order,
                                struct reshard_layout **layout);

// The layout of a ScaLAPACK array descriptor, nine integers, on a grid of `rows` x `columns` ranks numbered by `rank_order`
// (as `blacs_gridinit` was told: RESHARD_ROW_MAJOR for 'R', RESHARD_COL_MAJOR for 'C'). The leading dimension is that of `rank`, whose
// descriptor it is; a rank outside of the grid has none, and gives the other numbers as all others do. For a grid on other ranks than
// 0, 1, ..., `reshard_layout_set_ranks` comes next: `rank` may be the number that it has then.
int reshard_layout_from_descriptor(const int32_t *descriptor,
                                   uint64_t rows,
                                   uint64_t columns,
                                   int rank_order,
                                   uint64_t rank,
                                   struct reshard_layout **layout);

// Numbers the grid of a layout with these ranks, one for each process in the grid's order: for arrays on some ranks of a
// communicator. Strides stay those of their process of the grid.
int reshard_layout_set_ranks(struct reshard_layout *layout,
                             size_t count,
                             const uint64_t *ranks);

// Sets how far apart neighbours lie in the part of every rank, in elements, one number for each dimension: {1, 520} is a
// column-major matrix with a leading dimension of 520.
int reshard_layout_set_strides(struct reshard_layout *layout,
                               size_t dims,
                               const uint64_t *strides);

// As `reshard_layout_set_strides`, for the part of one rank: between processes each knows its own leading dimension only.
int reshard_layout_set_strides_of(struct reshard_layout *layout,
                                  uint64_t rank,
                                  size_t dims,
                                  const uint64_t *strides);

// Writes a layout as one line of notation, with the 0 at its end, into memory of so many bytes. Strides of single ranks are
// not part of it.
int reshard_layout_print(const struct reshard_layout *layout,
                         char *notation,
                         size_t bytes);

// Frees a layout. Null is allowed.
void reshard_layout_free(struct reshard_layout *layout);

// The number of dimensions.
int reshard_layout_dims(const struct reshard_layout *layout, size_t *dims);

// The shape of the array: `dims` numbers, one for each dimension.
int reshard_layout_shape(const struct reshard_layout *layout, size_t dims, uint64_t *shape);

// The shape of a rank's part.
int reshard_layout_local_shape(const struct reshard_layout *layout,
                               uint64_t rank,
                               size_t dims,
                               uint64_t *shape);

// How far apart neighbours lie in a rank's part, in elements.
int reshard_layout_strides(const struct reshard_layout *layout,
                           uint64_t rank,
                           size_t dims,
                           uint64_t *strides);

// How many elements of memory a rank's part spans, padding included: what to allocate. 0 for ranks that have none.
int reshard_layout_span(const struct reshard_layout *layout,
                        uint64_t rank,
                        uint64_t *elements);

// Where an element is: the rank that owns it, and its address in that rank's part, in elements.
int reshard_layout_locate(const struct reshard_layout *layout,
                          size_t dims,
                          const uint64_t *index,
                          uint64_t *rank,
                          uint64_t *address);

// Which element of the array a rank has at an index of its own part.
int reshard_layout_global_index(const struct reshard_layout *layout,
                                uint64_t rank,
                                size_t dims,
                                const uint64_t *local_index,
                                uint64_t *global_index);

// An empty plan.
int reshard_plan_new(struct reshard_plan **plan);

// Adds an array to a plan: all of it moves, from one layout to another of equal shape, elements of `element_bytes` bytes. If it
// fails, the plan is as it was.
int reshard_plan_add(struct reshard_plan *plan,
                     const struct reshard_layout *from,
                     const struct reshard_layout *to,
                     size_t element_bytes);

// As `reshard_plan_add`, for a window of the source that moves into a window of the destination, axes perhaps permuted, or for
// a triangle of it.
int reshard_plan_add_window(struct reshard_plan *plan,
                            const struct reshard_layout *from,
                            const struct reshard_layout *to,
                            size_t element_bytes,
                            const struct reshard_window *window);

// Bytes of memory that a rank's source part of an array spans, padding included: what to allocate; 0 if it has none.
int reshard_plan_source_bytes(const struct reshard_plan *plan,
                              size_t array,
                              uint64_t rank,
                              size_t *bytes);

// Bytes of memory that a rank's destination part of an array spans, padding included: what to allocate; 0 if it has none.
int reshard_plan_target_bytes(const struct reshard_plan *plan,
                              size_t array,
                              uint64_t rank,
                              size_t *bytes);

// Frees a plan. Null is allowed.
void reshard_plan_free(struct reshard_plan *plan);

// An engine in which all ranks of the plan are in this process: each byte is copied once, by a few threads. Options (null or
// "": none): `threads=N` (one on each core), `level=NAME` (portable, avx2, avx512, avx512vbmi: the best of the processor).
int reshard_engine_threads(const struct reshard_plan *plan,
                           const char *options,
                           struct reshard_engine **engine);

// An engine between processes: rank r of the layouts is rank r of the communicator, given as Fortran's handle. In C,
// `reshard_engine_mpi` takes an MPI_Comm; it is there if mpi.h was included before this header. MPI must have begun.
//
// Collective: all ranks of the communicator call it, with the same plan and options, and all get the same outcome: what is
// wrong on one rank alone is RESHARD_ERROR_MISMATCH on all, with a sentence that names the rank. So a rank that could not make its plan
// passes null. The communicator may be freed before the engine; the engine may be freed after the end of MPI, but not used.
//
// Options (null or "": none), words of one text: `mover=NAME` (private, cma, messages, mixed, lockstep; cma moves no triangles and scales nothing), `strategy=NAME`,
// `memory=BYTES`, `level=NAME`, `deadline=SECONDS` (of a rank that waits for another; 120 if nothing is said; `none`).
int reshard_engine_fortran(const struct reshard_plan *plan,
                           int32_t comm,
                           const char *options,
                           struct reshard_engine **engine);

// Moves one array whose parts here are one source and one destination, and waits until it is moved: between processes those
// of this rank. A part that is not there is null, with 0 bytes.
int reshard_engine_run(struct reshard_engine *engine,
                       const void *from,
                       size_t from_bytes,
                       void *to,
                       size_t to_bytes);

// As `reshard_engine_run`, scaled: the destination becomes alpha * source + beta * destination. Both point to one number
// of the element type (RESHARD_F32, RESHARD_F64, RESHARD_COMPLEX_F32, RESHARD_COMPLEX_F64); all ranks give the same.
int reshard_engine_run_scaled(struct reshard_engine *engine,
                              int element_type,
                              const void *alpha,
                              const void *from,
                              size_t from_bytes,
                              const void *beta,
                              void *to,
                              size_t to_bytes);

// Moves all arrays of the plan, in its order, and waits until they are moved.
//
// If it fails the destinations may be partly written. An engine of threads can be used again; one between processes
// cannot any more, on any rank: free it and make a new one.
int reshard_engine_run_arrays(struct reshard_engine *engine,
                              const struct reshard_array *arrays,
                              size_t count);

// The name of the engine's way to move data: "threads", or a mover of the engine between processes. Never freed.
int reshard_engine_mover(const struct reshard_engine *engine,
                         const char **name);

// Frees an engine. Null is allowed. A run that it has in flight goes on, and keeps what it needs. Not collective.
void reshard_engine_free(struct reshard_engine *engine);

// Refuses the next run of an engine, for callers that find an argument of it wrong themselves: the other ranks, which may be in that run, are
// sent `why` instead of waiting, and an engine between processes cannot be used any more. Returns RESHARD_ERROR_ARGUMENT, with `why` as the message.
int reshard_engine_refuse(struct reshard_engine *engine,
                          const char *why);

// Begins to move one array, so that something else can be computed meanwhile: see `reshard_engine_run` for the parts. There
// is no thread behind it: `reshard_run_test` moves what can be moved. With an engine of threads
// all is moved before this returns. An engine has one run in flight at a time; any number of engines may have one,
// begun and tested in any order on each rank.
int reshard_engine_start(struct reshard_engine *engine,
                         const void *from,
                         size_t from_bytes,
                         void *to,
                         size_t to_bytes,
                         struct reshard_run **run);

// As `reshard_engine_start`, for all arrays of the plan. The list of arrays itself need not stay.
int reshard_engine_start_arrays(struct reshard_engine *engine,
                                const struct reshard_array *arrays,
                                size_t count,
                                struct reshard_run **run);

// Moves what can be moved without waiting. `done` becomes 1 if the run is over, also by an error, else 0; after that it may be called
// again. A run that failed returns its error, now and whenever it is asked again. On a thread that may not call MPI this is an error,
// and the run stays in flight, as it does in `reshard_run_wait`.
int reshard_run_test(struct reshard_run *run,
                     int *done);

// Waits until the run is over on this rank. Its engine can then be used again, and the run is to be freed.
int reshard_run_wait(struct reshard_run *run);

// Waits until all of the runs are over, whichever ends first: ranks that wait for the same runs one by one, each in another
// order, wait for each other. Null entries are none. Returns the first error of the list; each run keeps its own.
int reshard_run_wait_all(struct reshard_run *const *runs,
                         size_t count);

// Frees a run. Null is allowed. One that is still in flight is waited for first, as the other ranks rely on it, and its
// outcome is not told; after an error its engine refuses the next run with it. On a thread that may not call MPI a run in flight fails
// instead; the other ranks are told by the next call of the thread that may.
void reshard_run_free(struct reshard_run *run);

// A ring whose processes are all in this one. Options (null or "": none): `ordered` (items are in order, process 0 has the first: a
// GEN_BLOCK redistribution), `one-way` (items go from i to i + 1 only).
int reshard_ring_threads(const struct reshard_loads *loads,
                         const char *options,
                         struct reshard_ring **ring);

// A ring between processes: process i is rank i of the communicator, given as Fortran's handle; `reshard_ring_mpi` takes an
// MPI_Comm. Collective: what is wrong on one rank alone is RESHARD_ERROR_MISMATCH on all, so a rank that cannot say its loads passes null. Ranks
// beyond the ring make and run it, too, without a part. Options as for `reshard_ring_threads`, and `memory=BYTES`, `deadline=SECONDS` or `none`.
int reshard_ring_fortran(const struct reshard_loads *loads,
                         int32_t comm,
                         const char *options,
                         struct reshard_ring **ring);

// How many items a process needs room for: a few more than it has or gets, where items pass through it. 0 beyond the ring.
int reshard_ring_room(const struct reshard_ring *ring,
                      uint64_t process,
                      size_t *items);

// Moves the items in place. A ring in one process takes the parts of all processes, one between processes that of this rank
// alone, none beyond the ring. The first loads[i] items of a part are there before, the first targets[i] after; it has the room that
// `reshard_ring_room` says. A ring between processes that failed cannot be used any more.
int reshard_ring_run(struct reshard_ring *ring,
                     const struct reshard_target *parts,
                     size_t count);

// Frees a ring. Null is allowed. Not collective.
void reshard_ring_free(struct reshard_ring *ring);

// A producer that is this process alone: it hosts all ranks of its layouts, and gives the parts of all. Options (null or "": none), words of
// one text: `deadline=SECONDS` (of every wait for the other job; 30), `consumers=N` (how many may come at a time; 1), `bind=ADDRESS:PORT` (where
// it listens; the loopback), `host=NAME` (by which other machines reach it), `tcp` (no shared memory).
int reshard_publisher_new(const char *options,
                          struct reshard_publisher **publisher);

// A producer whose ranks are those of a communicator, given as Fortran's handle; `reshard_publisher_mpi` takes an MPI_Comm. Collective, as is all
// that is done with it but `reshard_publish`. Options as for `reshard_publisher_new`; and, where one launch began both jobs and this communicator has
// the ranks of both, `program=NAME` (of this one) and `partner=NAME` (of the other): MPI then carries the data.
int reshard_publisher_fortran(int32_t comm,
                              const char *options,
                              struct reshard_publisher **publisher);

// Publishes an array under a name, before `reshard_publisher_open`. The type is a name: f32, f64, c64, c128, i8 to i64, u8 to u64, or
// bytes(N) for elements of N bytes of which nothing else is known; both jobs must say the same. `array` becomes its number for `reshard_put`.
int reshard_publish(struct reshard_publisher *publisher,
                    const char *name,
                    const struct reshard_layout *layout,
                    const char *element,
                    size_t *array);

// Lets consumers come. `meeting` is the path of a file that is written for them, or "at HOST:PORT" with a secret in the environment variable
// RESHARD_SECRET, or null for programs of one launch.
int reshard_publisher_open(struct reshard_publisher *publisher,
                           const char *meeting);

// Waits until so many consumers are there. Without it, who comes later gets the steps from then on.
int reshard_publisher_wait_for(struct reshard_publisher *publisher, size_t consumers);

// Gives a step of an array to all consumers, with a number and a few bytes of the program's own (at most 4096; null with 0: none). The parts are those
// of the ranks that this process hosts, by ascending rank, and may be changed when this returns. RESHARD_ERROR_PARTNER says that a consumer is gone; the
// step went to all others, and the program may go on.
int reshard_put(struct reshard_publisher *publisher,
                size_t array,
                uint64_t number,
                const void *header,
                size_t header_bytes,
                const struct reshard_source *parts,
                size_t parts_count);

// Says that there are no more steps, and waits until consumers have taken those that wait, and left. `complete` (may be null) becomes the number of
// consumers that took the last step of each of their arrays.
int reshard_publisher_finish(struct reshard_publisher *publisher,
                             size_t *complete);

// Frees a producer; consumers of one that was not finished are told that it is gone. Null is allowed.
void reshard_publisher_free(struct reshard_publisher *publisher);

// A consumer that is this process alone: it hosts all ranks of its layouts, and gets the parts of all. Options (null or "": none), words of
// one text: `deadline=SECONDS` (of every wait for the other job; 30), `connections=N` (how many to hold at a time; any number), `tcp` (no
// shared memory).
int reshard_subscriber_new(const char *options,
                           struct reshard_subscriber **subscriber);

// A consumer whose ranks are those of a communicator, given as Fortran's handle; `reshard_subscriber_mpi` takes an MPI_Comm. Collective, as is
// all that is done with it but `reshard_subscribe`. Options as for `reshard_subscriber_new`, and `program=NAME`, `partner=NAME` as for
// `reshard_publisher_fortran`.
int reshard_subscriber_fortran(int32_t comm,
                               const char *options,
                               struct reshard_subscriber **subscriber);

// Asks for an array, before `reshard_subscriber_connect`. The type is a name, as for `reshard_publish`. `window` is a part of the producer's array and
// where it goes, its `from` in the producer's array; null for all of it. Options (null or "": none): `depth=N` (steps that the producer
// keeps before it waits; 2), `drop-oldest` (it never waits, and drops the oldest), `whole` (nothing is written until all of a step is
// there). `array` becomes its number for `reshard_get`.
int reshard_subscribe(struct reshard_subscriber *subscriber,
                      const char *name,
                      const struct reshard_layout *layout,
                      const char *element,
                      const struct reshard_window *window,
                      const char *options,
                      size_t *array);

// Finds the producer, agrees with it, and plans: steps that are put from now on will come. `meeting` as for `reshard_publisher_open`; a file is waited for.
int reshard_subscriber_connect(struct reshard_subscriber *subscriber,
                               const char *meeting);

// Gets the next step of an array into the parts of the ranks that this process hosts, by ascending rank. `there` becomes 1, or 0 if there are no
// more; `step` (may be null) what is known of it. After an error parts may be written in places, unless `whole` steps were asked for.
int reshard_get(struct reshard_subscriber *subscriber,
                size_t array,
                const struct reshard_target *parts,
                size_t parts_count,
                struct reshard_step *step,
                int *there);

// Tells the producer that no more steps are wanted.
int reshard_subscriber_leave(struct reshard_subscriber *subscriber);

// Frees a consumer; the producer of one that has not left is told that it is gone. Null is allowed.
void reshard_subscriber_free(struct reshard_subscriber *subscriber);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif // RESHARD_H

// With MPI: these take an MPI_Comm. They are here if mpi.h was included before this header, even if this header was
// included without it earlier; or if RESHARD_WITH_MPI is defined.
#if defined(RESHARD_WITH_MPI) && !defined(MPI_VERSION)
#include <mpi.h>
#endif
#if defined(MPI_VERSION) && !defined(RESHARD_MPI_H)
#define RESHARD_MPI_H

// As reshard_engine_fortran, on a communicator of C.
static inline int reshard_engine_mpi(const reshard_plan *plan, MPI_Comm comm, const char *options,
                                     reshard_engine **engine)
{
    return reshard_engine_fortran(plan, (int32_t)MPI_Comm_c2f(comm), options, engine);
}

// As reshard_ring_fortran, on a communicator of C.
static inline int reshard_ring_mpi(const reshard_loads *loads, MPI_Comm comm, const char *options,
                                   reshard_ring **ring)
{
    return reshard_ring_fortran(loads, (int32_t)MPI_Comm_c2f(comm), options, ring);
}

// As reshard_publisher_fortran, on a communicator of C.
static inline int reshard_publisher_mpi(MPI_Comm comm, const char *options, reshard_publisher **publisher)
{
    return reshard_publisher_fortran((int32_t)MPI_Comm_c2f(comm), options, publisher);
}

// As reshard_subscriber_fortran, on a communicator of C.
static inline int reshard_subscriber_mpi(MPI_Comm comm, const char *options, reshard_subscriber **subscriber)
{
    return reshard_subscriber_fortran((int32_t)MPI_Comm_c2f(comm), options, subscriber);
}

#endif
