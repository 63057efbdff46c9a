! The same with the module: a matrix as a ScaLAPACK descriptor says it moves to four stripes of columns, is scaled, and moves on in
! a run that is waited for later; then items are balanced along a ring.
!
!     mpif90 $PREFIX/include/reshard.f90 ranks.f90 -L$PREFIX/lib -lreshard -o ranks
!     mpirun -n 4 ./ranks
program ranks
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64
    use mpi
    use reshard
    implicit none
    integer, parameter :: m = 500, n = 400
    type(reshard_layout) :: from, to
    type(reshard_plan) :: plan
    type(reshard_engine) :: engine, back
    type(reshard_run) :: run
    integer :: me, ierr, descriptor(9)
    logical :: done

    call mpi_init(ierr)
    call mpi_comm_rank(mpi_comm_world, me, ierr)
    call matrix()
    call turned()
    call items()
    call wrong()
    if (me == 0) print *, "moved"
    call mpi_finalize(ierr)

contains

    pure double precision function value(i, j)
        integer(int64), intent(in) :: i, j
        value = 1000d0 * real(i, kind(1d0)) + real(j, kind(1d0))
    end function

    subroutine matrix()
        integer(int64) :: extents(2), index(2), i, j
        integer(c_size_t) :: from_bytes, to_bytes
        double precision, allocatable, asynchronous, target :: a(:, :), b(:, :), c(:, :)
        integer :: lld
        ! Blocks of 32 x 48 on a 2 x 2 grid; the leading dimension is a little longer than it must be.
        lld = 280
        descriptor = [1, 0, m, n, 32, 48, 0, 0, lld]
        call reshard_layout_from_descriptor(descriptor, 2, 2, me, from)
        call reshard_layout_block_cyclic([m, n], [1, 4], [m, n/4], to)
        call reshard_plan_new(plan)
        call reshard_plan_add(plan, from, to, 8)
        call reshard_plan_source_bytes(plan, 0, me, from_bytes)
        call reshard_plan_target_bytes(plan, 0, me, to_bytes)
        call reshard_layout_local_shape(from, me, extents)
        allocate (a(lld, extents(2)), c(lld, extents(2)), b(m, n/4))
        a = -1
        c = -1
        do j = 1, extents(2)
            do i = 1, extents(1)
                call reshard_layout_global_index(from, me, [i - 1, j - 1], index)
                a(i, j) = value(index(1), index(2))
            end do
        end do

        call reshard_engine_mpi(plan, mpi_comm_world, engine, "deadline=60")
        call reshard_engine_run(engine, a, from_bytes, b, to_bytes)
        ! 3 a - 2 b is what it was, and nothing else is.
        call reshard_engine_run_scaled(engine, reshard_factor(3d0), a, from_bytes, reshard_factor(-2d0), b, to_bytes)
        do j = 1, n/4
            do i = 1, m
                if (b(i, j) /= value(i - 1, j - 1 + me*(n/4))) error stop "wrong in b"
            end do
        end do

        ! And back, in a run in flight; engines keep what they need of plans and layouts.
        call reshard_plan_free(plan)
        call reshard_plan_new(plan)
        call reshard_plan_add(plan, to, from, 8)
        call reshard_engine_mpi(plan, mpi_comm_world, back)
        call reshard_layout_free(from)
        call reshard_layout_free(to)
        call reshard_plan_free(plan)
        call reshard_engine_start(back, b, to_bytes, c, from_bytes, run)
        done = .false.
        do while (.not. done)
            call reshard_run_test(run, done)
        end do
        call reshard_run_wait(run)
        call reshard_run_free(run)
        if (any(c /= a)) error stop "wrong in c"
        call reshard_engine_free(engine)
        call reshard_engine_free(back)
    end subroutine

    ! A window of a matrix, transposed, into the beginning of another; and two arrays in one run.
    subroutine turned()
        integer, parameter :: rows = 30, columns = 20
        integer, allocatable, target :: a(:, :), b(:, :), c(:, :)
        type(reshard_part) :: sources(2), targets(2)
        integer :: i, j
        allocate (a(rows, columns/4), b(columns, 8), c(rows, columns/4))
        a = reshape([((100*i + (j + me*(columns/4)), i=0, rows - 1), j=0, columns/4 - 1)], shape(a))
        b = -1
        call reshard_layout_parse("1x4/30x5 of 30x20", from)
        call reshard_layout_parse("(*, cyclic) on 1x4 of 20x30", to)
        call reshard_plan_new(plan)
        ! Rows 2 to 29 of the source become columns 0 to 27.
        call reshard_plan_add_window(plan, from, to, 4, extents=[28_int64, 20_int64], begin=[2_int64, 0_int64], &
            axes=[1_int64, 0_int64])
        call reshard_plan_add(plan, from, from, 4)
        call reshard_engine_mpi(plan, mpi_comm_world, engine, "mover=messages")
        sources = reshard_part(c_loc(a), 4_c_size_t*size(a))
        targets = [reshard_part(c_loc(b), 4_c_size_t*size(b)), reshard_part(c_loc(c), 4_c_size_t*size(c))]
        call reshard_engine_run_arrays(engine, sources, targets)
        if (any(c /= a)) error stop "wrong copy"
        do j = 1, 7
            do i = 1, columns
                if (b(i, j) /= 100*(4*(j - 1) + me + 2) + i - 1) error stop "wrong where it was transposed"
            end do
        end do
        call reshard_engine_free(engine)
        call reshard_plan_free(plan)
        call reshard_layout_free(from)
        call reshard_layout_free(to)
    end subroutine

    ! Rank r has 10 (r + 1) integers, in order; each should have 25.
    subroutine items()
        type(reshard_ring) :: ring
        integer(c_size_t) :: room
        integer, allocatable :: part(:)
        integer :: k, first
        call reshard_ring_mpi([10_int64, 20_int64, 30_int64, 40_int64], [25_int64, 25_int64, 25_int64, 25_int64], &
            4_c_size_t, mpi_comm_world, ring, "ordered")
        call reshard_ring_room(ring, me, room)
        allocate (part(room))
        first = 5*me*(me + 1)
        part(:10*(me + 1)) = [(first + k, k=0, 10*(me + 1) - 1)]
        call reshard_ring_run(ring, part, 4*room)
        if (any(part(:25) /= [(25*me + k, k=0, 24)])) error stop "wrong items"
        call reshard_ring_free(ring)
    end subroutine

    ! With ierr an error is a code and a sentence; without, the program would stop here.
    subroutine wrong()
        integer :: code
        call reshard_layout_parse("2x2/64y64 of 500x400", from, code)
        if (code /= RESHARD_ERROR_NOTATION) error stop "not refused"
        if (index(reshard_message(), "character 7") == 0) error stop "without its place"
    end subroutine
end program
