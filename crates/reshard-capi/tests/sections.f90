! What a run in flight takes as an array, and what it refuses: compiled and run by xtask/tests/installed.rs.
program sections
    use, intrinsic :: iso_c_binding, only: c_size_t
    use, intrinsic :: iso_fortran_env, only: int64
    use reshard
    implicit none
    type(reshard_layout) :: layout
    type(reshard_plan) :: plan
    type(reshard_engine) :: engine
    type(reshard_run) :: run
    real(8), asynchronous, target :: from(8), to(8)
    ! As a program has it that does not know better.
    real(8), target :: matrix(2, 8)
    integer :: ierr, k
    integer(c_size_t), parameter :: bytes = 64

    call reshard_layout_parse("1/8 of 8", layout)
    call reshard_plan_new(plan)
    call reshard_plan_add(plan, layout, layout, 8)
    call reshard_engine_threads(plan, engine)
    from = [(real(k, 8), k = 1, 8)]
    matrix = 0

    call reshard_engine_start(engine, from, bytes, matrix(1, :), bytes, run, ierr)
    if (ierr /= RESHARD_ERROR_ARGUMENT) error stop "a row of a matrix was taken as the destination"
    if (index(reshard_message(), "to was given to reshard_engine_start as a section that is not contiguous") /= 1) &
        error stop "the sentence is another one"
    call reshard_engine_start(engine, matrix(1, :), bytes, to, bytes, run, ierr)
    if (ierr /= RESHARD_ERROR_ARGUMENT) error stop "a row of a matrix was taken as the source"
    if (any(abs(matrix) > 0)) error stop "what was refused was written to"

    ! Arrays, contiguous sections of any rank, and arrays from an element on.
    to = 0
    call reshard_engine_start(engine, from, bytes, to, bytes, run)
    call reshard_run_wait(run)
    call reshard_run_free(run)
    if (any(abs(to - from) > 0)) error stop "an array was not moved"
    call reshard_engine_start(engine, from(1:8), bytes, matrix(:, 1:4), bytes, run)
    call reshard_run_wait(run)
    call reshard_run_free(run)
    if (any(abs(reshape(matrix(:, 1:4), [8]) - from) > 0)) error stop "a section was not moved"
    call reshard_engine_start(engine, from(1), bytes, matrix(1, 5), bytes, run)
    call reshard_run_wait(run)
    call reshard_run_free(run)
    if (any(abs(reshape(matrix(:, 5:8), [8]) - from) > 0)) error stop "an array from an element on was not moved"
    call reshard_engine_free(engine)
    call reshard_plan_free(plan)
    call reshard_layout_free(layout)
    print "(a)", "sections are as they should be"
end program
