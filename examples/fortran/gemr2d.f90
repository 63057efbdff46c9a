! A program as it was before reshard: it redistributes a matrix with ScaLAPACK's pdgemr2d, and nothing in it changes. Link
! libreshard_scalapack before ScaLAPACK, or preload it; RESHARD_SCALAPACK=report says on standard error who did the work.
!
!     mpif90 gemr2d.f90 -L$PREFIX/lib -lreshard_scalapack -lscalapack-openmpi -o gemr2d
!     mpirun -n 4 ./gemr2d
program gemr2d
    implicit none
    integer, parameter :: m = 500, n = 400
    integer :: me, processes, context_a, context_b, all, info
    integer :: rows, columns, row, column, i, j
    integer :: desc_a(9), desc_b(9)
    double precision, allocatable :: a(:, :), b(:, :)
    integer, external :: numroc, indxl2g

    call blacs_pinfo(me, processes)
    if (processes /= 4) stop "start it with 4 processes"
    call blacs_get(-1, 0, all)
    context_a = all
    call blacs_gridinit(context_a, "R", 2, 2)
    context_b = all
    call blacs_gridinit(context_b, "R", 1, 4)

    call blacs_gridinfo(context_a, rows, columns, row, column)
    allocate (a(max(1, numroc(m, 32, row, 0, rows)), max(1, numroc(n, 48, column, 0, columns))))
    call descinit(desc_a, m, n, 32, 48, 0, 0, context_a, size(a, 1), info)
    do j = 1, numroc(n, 48, column, 0, columns)
        do i = 1, numroc(m, 32, row, 0, rows)
            a(i, j) = 1000d0 * indxl2g(i, 32, row, 0, rows) + indxl2g(j, 48, column, 0, columns)
        end do
    end do

    call blacs_gridinfo(context_b, rows, columns, row, column)
    allocate (b(max(1, numroc(m, m, row, 0, rows)), max(1, numroc(n, 7, column, 0, columns))))
    call descinit(desc_b, m, n, m, 7, 0, 0, context_b, size(b, 1), info)
    b = -1

    call pdgemr2d(m, n, a, 1, 1, desc_a, b, 1, 1, desc_b, context_a)

    do j = 1, numroc(n, 7, column, 0, columns)
        do i = 1, numroc(m, m, row, 0, rows)
            if (b(i, j) /= 1000d0 * indxl2g(i, m, row, 0, rows) + indxl2g(j, 7, column, 0, columns)) error stop "wrong"
        end do
    end do
    if (me == 0) print *, "moved"
    call blacs_gridexit(context_a)
    call blacs_gridexit(context_b)
    call blacs_exit(0)
end program
