! reshard moves distributed arrays between layouts: docs/c.md is the manual.
!
! Compile this file with the compiler of your program: module files of one compiler are of no use to another.
!
!     use reshard
!     type(reshard_layout) :: from, to
!     type(reshard_plan)   :: plan
!     type(reshard_engine) :: engine
!     call reshard_layout_parse("2x2/64x64 of 1000x800", from)
!     call reshard_layout_parse("1x4/32x32 of 1000x800", to)
!     call reshard_plan_new(plan)
!     call reshard_plan_add(plan, from, to, 8)
!     call reshard_engine_mpi(plan, comm, engine)              ! mpi_f08: comm%mpi_val
!     call reshard_engine_run(engine, mine, mine_bytes, moved, moved_bytes)
!
! Every procedure has an optional last argument ierr: RESHARD_OK (0) or a code, and reshard_message() has the sentence. Without
! ierr an error is printed, and the program stops. Indices and ranks count from 0, as in C and MPI; sizes of parts are in bytes.
! Arrays must be contiguous; those of a run in flight, and those of which parts are given by c_loc, have the attributes TARGET and ASYNCHRONOUS.
! An array that is not allocated, on a rank without a part, cannot be passed: allocate one of no elements.
module reshard
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit, int64
    implicit none
    private

    integer, parameter, public :: RESHARD_OK = 0, RESHARD_ERROR_NOTATION = 1, RESHARD_ERROR_MISMATCH = 2, &
        RESHARD_ERROR_OUT_OF_RANGE = 3, RESHARD_ERROR_TOO_LARGE = 4, RESHARD_ERROR_UNSUPPORTED = 5, &
        RESHARD_ERROR_MEMORY = 6, RESHARD_ERROR_FAILED = 7, RESHARD_ERROR_EXTERNAL = 8, RESHARD_ERROR_PARTNER = 9, &
        RESHARD_ERROR_ARGUMENT = 100, RESHARD_ERROR_BUSY = 101, RESHARD_ERROR_INTERNAL = 102
    integer, parameter, public :: RESHARD_ROW_MAJOR = 1, RESHARD_COL_MAJOR = 2
    integer, parameter, public :: RESHARD_ALL = 0, RESHARD_UPPER = 1, RESHARD_LOWER = 2
    integer, parameter, public :: RESHARD_BITS = 0, RESHARD_F32 = 1, RESHARD_F64 = 2, RESHARD_COMPLEX_F32 = 3, &
        RESHARD_COMPLEX_F64 = 4

    ! Objects of the library. Copies name the same object; free it once.
    type, public :: reshard_layout
        type(c_ptr) :: handle = c_null_ptr
    end type
    type, public :: reshard_plan
        type(c_ptr) :: handle = c_null_ptr
    end type
    type, public :: reshard_engine
        type(c_ptr) :: handle = c_null_ptr
    end type
    type, public :: reshard_run
        type(c_ptr) :: handle = c_null_ptr
    end type
    type, public :: reshard_ring
        type(c_ptr) :: handle = c_null_ptr
    end type

    ! A number, and its type.
    type, public :: reshard_factor
        private
        integer(c_int) :: element_type = -1
        integer(c_int64_t) :: bits(2) = 0
    end type

    ! A part of an array for calls that take several: reshard_part(c_loc(x), bytes).
    type, bind(C), public :: reshard_part
        type(c_ptr) :: address = c_null_ptr
        integer(c_size_t) :: bytes = 0
    end type

    ! As struct reshard_window, reshard_array and reshard_loads of reshard.h.
    type, bind(C) :: c_window
        integer(c_size_t) :: dims = 0
        type(c_ptr) :: extents = c_null_ptr, from = c_null_ptr, to = c_null_ptr, axes = c_null_ptr
        integer(c_int) :: triangle = RESHARD_ALL
        integer(c_int64_t) :: diagonal = 0
    end type
    type, bind(C) :: c_array
        type(c_ptr) :: from = c_null_ptr
        integer(c_size_t) :: from_count = 0
        type(c_ptr) :: to = c_null_ptr
        integer(c_size_t) :: to_count = 0
        integer(c_int) :: element_type = RESHARD_BITS, conjugate = 0
        type(c_ptr) :: alpha = c_null_ptr, beta = c_null_ptr
    end type
    type, bind(C) :: c_loads
        integer(c_size_t) :: processes = 0
        type(c_ptr) :: loads = c_null_ptr, targets = c_null_ptr, right = c_null_ptr, left = c_null_ptr
        integer(c_size_t) :: item_bytes = 0
    end type

    public :: reshard_message
    public :: reshard_layout_parse, reshard_layout_block_cyclic, reshard_layout_from_descriptor, reshard_layout_set_ranks
    public :: reshard_layout_set_strides, reshard_layout_set_strides_of, reshard_layout_span, reshard_layout_local_shape
    public :: reshard_layout_locate, reshard_layout_global_index, reshard_layout_free
    public :: reshard_plan_new, reshard_plan_add, reshard_plan_add_window, reshard_plan_source_bytes
    public :: reshard_plan_target_bytes, reshard_plan_free
    public :: reshard_engine_threads, reshard_engine_mpi, reshard_engine_free
    public :: reshard_engine_run, reshard_engine_run_scaled, reshard_engine_run_arrays, reshard_engine_run_parts
    public :: reshard_engine_start, reshard_engine_start_arrays
    public :: reshard_run_test, reshard_run_wait, reshard_run_wait_all, reshard_run_free
    public :: reshard_ring_threads, reshard_ring_mpi, reshard_ring_room, reshard_ring_run, reshard_ring_run_parts
    public :: reshard_ring_free

    ! Counts and sizes of any integer kind that has them.
    interface reshard_plan_add
        module procedure plan_add_4, plan_add_8
    end interface

    ! Descriptors of integers of 4 bytes (LP64) and of 8 (ILP64).
    interface reshard_layout_from_descriptor
        module procedure from_descriptor_4, from_descriptor_8
    end interface

    ! A factor, alpha or beta, of one of the four types of the BLAS, which is that of the elements: reshard_factor(2d0).
    interface reshard_factor
        module procedure factor_f32, factor_f64, factor_complex_f32, factor_complex_f64
    end interface

    interface
        function c_error_message() bind(C, name="reshard_error_message")
            import
            type(c_ptr) :: c_error_message
        end function
        function c_strlen(text) bind(C, name="strlen")
            import
            type(c_ptr), value :: text
            integer(c_size_t) :: c_strlen
        end function
        integer(c_int) function c_layout_parse(notation, layout) bind(C, name="reshard_layout_parse")
            import
            character(kind=c_char), intent(in) :: notation(*)
            type(c_ptr), intent(out) :: layout
        end function
        integer(c_int) function c_layout_block_cyclic(dims, extents, grid, blocks, first, rank_order, memory_order, layout) &
            bind(C, name="reshard_layout_block_cyclic")
            import
            integer(c_size_t), value :: dims
            type(c_ptr), value :: extents, grid, blocks, first
            integer(c_int), value :: rank_order, memory_order
            type(c_ptr), intent(out) :: layout
        end function
        integer(c_int) function c_layout_from_descriptor(descriptor, rows, columns, rank_order, rank, layout) &
            bind(C, name="reshard_layout_from_descriptor")
            import
            integer(c_int32_t), intent(in) :: descriptor(9)
            integer(c_int64_t), value :: rows, columns, rank
            integer(c_int), value :: rank_order
            type(c_ptr), intent(out) :: layout
        end function
        integer(c_int) function c_layout_set_ranks(layout, count, ranks) bind(C, name="reshard_layout_set_ranks")
            import
            type(c_ptr), value :: layout
            integer(c_size_t), value :: count
            integer(c_int64_t), intent(in) :: ranks(*)
        end function
        integer(c_int) function c_layout_set_strides(layout, dims, strides) bind(C, name="reshard_layout_set_strides")
            import
            type(c_ptr), value :: layout
            integer(c_size_t), value :: dims
            integer(c_int64_t), intent(in) :: strides(*)
        end function
        integer(c_int) function c_layout_set_strides_of(layout, rank, dims, strides) &
            bind(C, name="reshard_layout_set_strides_of")
            import
            type(c_ptr), value :: layout
            integer(c_int64_t), value :: rank
            integer(c_size_t), value :: dims
            integer(c_int64_t), intent(in) :: strides(*)
        end function
        integer(c_int) function c_layout_span(layout, rank, elements) bind(C, name="reshard_layout_span")
            import
            type(c_ptr), value :: layout
            integer(c_int64_t), value :: rank
            integer(c_int64_t), intent(inout) :: elements
        end function
        integer(c_int) function c_layout_local_shape(layout, rank, dims, extents) &
            bind(C, name="reshard_layout_local_shape")
            import
            type(c_ptr), value :: layout
            integer(c_int64_t), value :: rank
            integer(c_size_t), value :: dims
            integer(c_int64_t), intent(inout) :: extents(*)
        end function
        integer(c_int) function c_layout_locate(layout, dims, index, rank, address) &
            bind(C, name="reshard_layout_locate")
            import
            type(c_ptr), value :: layout
            integer(c_size_t), value :: dims
            integer(c_int64_t), intent(in) :: index(*)
            integer(c_int64_t), intent(inout) :: rank, address
        end function
        integer(c_int) function c_layout_global_index(layout, rank, dims, local_index, global_index) &
            bind(C, name="reshard_layout_global_index")
            import
            type(c_ptr), value :: layout
            integer(c_int64_t), value :: rank
            integer(c_size_t), value :: dims
            integer(c_int64_t), intent(in) :: local_index(*)
            integer(c_int64_t), intent(inout) :: global_index(*)
        end function
        subroutine c_layout_free(layout) bind(C, name="reshard_layout_free")
            import
            type(c_ptr), value :: layout
        end subroutine
        integer(c_int) function c_plan_new(plan) bind(C, name="reshard_plan_new")
            import
            type(c_ptr), intent(out) :: plan
        end function
        integer(c_int) function c_plan_add(plan, from, to, element_bytes) bind(C, name="reshard_plan_add")
            import
            type(c_ptr), value :: plan, from, to
            integer(c_size_t), value :: element_bytes
        end function
        integer(c_int) function c_plan_add_window(plan, from, to, element_bytes, window) &
            bind(C, name="reshard_plan_add_window")
            import
            type(c_ptr), value :: plan, from, to
            integer(c_size_t), value :: element_bytes
            type(c_window), intent(in) :: window
        end function
        integer(c_int) function c_plan_source_bytes(plan, array, rank, bytes) bind(C, name="reshard_plan_source_bytes")
            import
            type(c_ptr), value :: plan
            integer(c_size_t), value :: array
            integer(c_int64_t), value :: rank
            integer(c_size_t), intent(inout) :: bytes
        end function
        integer(c_int) function c_plan_target_bytes(plan, array, rank, bytes) bind(C, name="reshard_plan_target_bytes")
            import
            type(c_ptr), value :: plan
            integer(c_size_t), value :: array
            integer(c_int64_t), value :: rank
            integer(c_size_t), intent(inout) :: bytes
        end function
        subroutine c_plan_free(plan) bind(C, name="reshard_plan_free")
            import
            type(c_ptr), value :: plan
        end subroutine
        integer(c_int) function c_engine_threads(plan, options, engine) bind(C, name="reshard_engine_threads")
            import
            type(c_ptr), value :: plan
            character(kind=c_char), intent(in) :: options(*)
            type(c_ptr), intent(out) :: engine
        end function
        integer(c_int) function c_engine_fortran(plan, comm, options, engine) bind(C, name="reshard_engine_fortran")
            import
            type(c_ptr), value :: plan
            integer(c_int32_t), value :: comm
            character(kind=c_char), intent(in) :: options(*)
            type(c_ptr), intent(out) :: engine
        end function
        integer(c_int) function c_engine_run(engine, from, from_bytes, to, to_bytes) bind(C, name="reshard_engine_run")
            import
            type(c_ptr), value :: engine
            type(*), dimension(*), intent(in) :: from
            integer(c_size_t), value :: from_bytes, to_bytes
            type(*), dimension(*), intent(inout) :: to
        end function
        integer(c_int) function c_engine_run_scaled(engine, element_type, alpha, from, from_bytes, beta, to, to_bytes) &
            bind(C, name="reshard_engine_run_scaled")
            import
            type(c_ptr), value :: engine
            integer(c_int), value :: element_type
            integer(c_int64_t), intent(in) :: alpha(2), beta(2)
            type(*), dimension(*), intent(in) :: from
            integer(c_size_t), value :: from_bytes, to_bytes
            type(*), dimension(*), intent(inout) :: to
        end function
        integer(c_int) function c_engine_run_arrays(engine, arrays, count) bind(C, name="reshard_engine_run_arrays")
            import
            type(c_ptr), value :: engine
            type(c_array), intent(in) :: arrays(*)
            integer(c_size_t), value :: count
        end function
        integer(c_int) function c_engine_start(engine, from, from_bytes, to, to_bytes, run) &
            bind(C, name="reshard_engine_start")
            import
            type(c_ptr), value :: engine, from, to
            integer(c_size_t), value :: from_bytes, to_bytes
            type(c_ptr), intent(out) :: run
        end function
        integer(c_int) function c_engine_refuse(engine, why) bind(C, name="reshard_engine_refuse")
            import
            type(c_ptr), value :: engine
            character(kind=c_char), intent(in) :: why(*)
        end function
        integer(c_int) function c_engine_start_arrays(engine, arrays, count, run) &
            bind(C, name="reshard_engine_start_arrays")
            import
            type(c_ptr), value :: engine
            type(c_array), intent(in) :: arrays(*)
            integer(c_size_t), value :: count
            type(c_ptr), intent(out) :: run
        end function
        subroutine c_engine_free(engine) bind(C, name="reshard_engine_free")
            import
            type(c_ptr), value :: engine
        end subroutine
        integer(c_int) function c_run_test(run, done) bind(C, name="reshard_run_test")
            import
            type(c_ptr), value :: run
            integer(c_int), intent(inout) :: done
        end function
        integer(c_int) function c_run_wait(run) bind(C, name="reshard_run_wait")
            import
            type(c_ptr), value :: run
        end function
        integer(c_int) function c_run_wait_all(runs, count) bind(C, name="reshard_run_wait_all")
            import
            type(c_ptr), intent(in) :: runs(*)
            integer(c_size_t), value :: count
        end function
        subroutine c_run_free(run) bind(C, name="reshard_run_free")
            import
            type(c_ptr), value :: run
        end subroutine
        integer(c_int) function c_ring_threads(loads, options, ring) bind(C, name="reshard_ring_threads")
            import
            type(c_loads), intent(in) :: loads
            character(kind=c_char), intent(in) :: options(*)
            type(c_ptr), intent(out) :: ring
        end function
        integer(c_int) function c_ring_fortran(loads, comm, options, ring) bind(C, name="reshard_ring_fortran")
            import
            type(c_loads), intent(in) :: loads
            integer(c_int32_t), value :: comm
            character(kind=c_char), intent(in) :: options(*)
            type(c_ptr), intent(out) :: ring
        end function
        integer(c_int) function c_ring_room(ring, process, items) bind(C, name="reshard_ring_room")
            import
            type(c_ptr), value :: ring
            integer(c_int64_t), value :: process
            integer(c_size_t), intent(inout) :: items
        end function
        integer(c_int) function c_ring_run(ring, parts, count) bind(C, name="reshard_ring_run")
            import
            type(c_ptr), value :: ring
            type(reshard_part), intent(in), target :: parts(*)
            integer(c_size_t), value :: count
        end function
        subroutine c_ring_free(ring) bind(C, name="reshard_ring_free")
            import
            type(c_ptr), value :: ring
        end subroutine
    end interface

contains

    ! The sentence of the last call that failed on this thread; empty if none has.
    function reshard_message() result(message)
        character(:), allocatable :: message
        character(kind=c_char), pointer :: letters(:)
        type(c_ptr) :: text
        integer :: k
        text = c_error_message()
        call c_f_pointer(text, letters, [c_strlen(text)])
        allocate (character(size(letters)) :: message)
        do k = 1, size(letters)
            message(k:k) = letters(k)
        end do
    end function

    ! The end of every call: the code to the caller, or the sentence and the end of the program.
    subroutine conclude(code, ierr)
        integer(c_int), intent(in) :: code
        integer, intent(out), optional :: ierr
        if (present(ierr)) then
            ierr = code
        else if (code /= RESHARD_OK) then
            write (error_unit, "(2a)") "reshard: ", reshard_message()
            error stop 1
        end if
    end subroutine

    ! A text as C wants it.
    function c_text(text)
        character(*), intent(in), optional :: text
        character(:, kind=c_char), allocatable :: c_text
        c_text = c_null_char
        if (present(text)) c_text = trim(text)//c_null_char
    end function

    ! A layout from one line of notation.
    subroutine reshard_layout_parse(notation, layout, ierr)
        character(*), intent(in) :: notation
        type(reshard_layout), intent(out) :: layout
        integer, intent(out), optional :: ierr
        call conclude(c_layout_parse(c_text(notation), layout%handle), ierr)
    end subroutine

    ! A block-cyclic layout from numbers, as many of each as the array has dimensions. Unless said otherwise the first block
    ! is on process 0 of each dimension of the grid, ranks are numbered row by row, and parts are column-major.
    subroutine reshard_layout_block_cyclic(extents, grid, blocks, layout, first, rank_order, memory_order, ierr)
        integer, intent(in) :: extents(:), grid(:), blocks(:)
        type(reshard_layout), intent(out) :: layout
        integer, intent(in), optional :: first(:), rank_order, memory_order
        integer, intent(out), optional :: ierr
        integer(c_int) :: ranks_by, memory_by
        integer(c_int64_t), target :: all_extents(size(extents)), all_grid(size(grid)), all_blocks(size(blocks)), &
            all_first(size(extents))
        type(c_ptr) :: grid_list, blocks_list, extents_list
        ranks_by = RESHARD_ROW_MAJOR
        if (present(rank_order)) ranks_by = int(rank_order, c_int)
        memory_by = RESHARD_COL_MAJOR
        if (present(memory_order)) memory_by = int(memory_order, c_int)
        all_extents = extents
        all_grid = grid
        all_blocks = blocks
        all_first = 0
        ! A list of another length is none, which the library refuses by its name.
        extents_list = c_loc(all_extents)
        grid_list = c_null_ptr
        if (size(grid) == size(extents)) grid_list = c_loc(all_grid)
        blocks_list = c_null_ptr
        if (size(blocks) == size(extents)) blocks_list = c_loc(all_blocks)
        if (present(first)) then
            if (size(first) == size(extents)) then
                all_first = first
            else
                extents_list = c_null_ptr
            end if
        end if
        call conclude(c_layout_block_cyclic(size(extents, kind=c_size_t), extents_list, grid_list, blocks_list, &
            c_loc(all_first), ranks_by, memory_by, layout%handle), ierr)
    end subroutine

    ! The layout of a ScaLAPACK descriptor, on a grid of rows x columns ranks. `rank` is this process's, whose leading
    ! dimension the descriptor has.
    subroutine from_descriptor_4(descriptor, rows, columns, rank, layout, rank_order, ierr)
        integer(c_int32_t), intent(in) :: descriptor(9)
        integer, intent(in) :: rows, columns, rank
        type(reshard_layout), intent(out) :: layout
        integer, intent(in), optional :: rank_order
        integer, intent(out), optional :: ierr
        integer(c_int) :: ranks_by
        ranks_by = RESHARD_ROW_MAJOR
        if (present(rank_order)) ranks_by = int(rank_order, c_int)
        call conclude(c_layout_from_descriptor(descriptor, int(rows, c_int64_t), int(columns, c_int64_t), ranks_by, &
            int(rank, c_int64_t), layout%handle), ierr)
    end subroutine

    ! As before, of integers of 8 bytes. Numbers beyond 4 bytes are refused: such a layout is made by reshard_layout_parse.
    subroutine from_descriptor_8(descriptor, rows, columns, rank, layout, rank_order, ierr)
        integer(c_int64_t), intent(in) :: descriptor(9)
        integer, intent(in) :: rows, columns, rank
        type(reshard_layout), intent(out) :: layout
        integer, intent(in), optional :: rank_order
        integer, intent(out), optional :: ierr
        integer(c_int) :: ranks_by
        integer(c_int32_t) :: narrow(9)
        ranks_by = RESHARD_ROW_MAJOR
        if (present(rank_order)) ranks_by = int(rank_order, c_int)
        narrow = 0
        ! The context may be any number, and is not read.
        where (abs(descriptor) <= huge(narrow)) narrow = int(descriptor, c_int32_t)
        if (any(abs(descriptor(3:9)) > huge(narrow))) narrow(1) = -1
        call conclude(c_layout_from_descriptor(narrow, int(rows, c_int64_t), int(columns, c_int64_t), ranks_by, &
            int(rank, c_int64_t), layout%handle), ierr)
    end subroutine

    ! The ranks of a layout's grid, one for each process in the grid's order.
    subroutine reshard_layout_set_ranks(layout, ranks, ierr)
        type(reshard_layout), intent(in) :: layout
        integer, intent(in) :: ranks(:)
        integer, intent(out), optional :: ierr
        call conclude(c_layout_set_ranks(layout%handle, size(ranks, kind=c_size_t), int(ranks, c_int64_t)), ierr)
    end subroutine

    ! Strides of every rank's part, in elements.
    subroutine reshard_layout_set_strides(layout, strides, ierr)
        type(reshard_layout), intent(in) :: layout
        integer(int64), intent(in) :: strides(:)
        integer, intent(out), optional :: ierr
        call conclude(c_layout_set_strides(layout%handle, size(strides, kind=c_size_t), int(strides, c_int64_t)), ierr)
    end subroutine

    ! Strides of one rank's part, in elements.
    subroutine reshard_layout_set_strides_of(layout, rank, strides, ierr)
        type(reshard_layout), intent(in) :: layout
        integer, intent(in) :: rank
        integer(int64), intent(in) :: strides(:)
        integer, intent(out), optional :: ierr
        call conclude(c_layout_set_strides_of(layout%handle, int(rank, c_int64_t), size(strides, kind=c_size_t), &
            int(strides, c_int64_t)), ierr)
    end subroutine

    ! Elements of memory that a rank's part spans; 0 if it has none.
    subroutine reshard_layout_span(layout, rank, elements, ierr)
        type(reshard_layout), intent(in) :: layout
        integer, intent(in) :: rank
        integer(int64), intent(out) :: elements
        integer, intent(out), optional :: ierr
        call conclude(c_layout_span(layout%handle, int(rank, c_int64_t), elements), ierr)
    end subroutine

    ! The shape of a rank's part: `extents` has a number for each dimension.
    subroutine reshard_layout_local_shape(layout, rank, extents, ierr)
        type(reshard_layout), intent(in) :: layout
        integer, intent(in) :: rank
        integer(int64), intent(out) :: extents(:)
        integer, intent(out), optional :: ierr
        integer(c_int64_t) :: answer(size(extents))
        answer = -1
        call conclude(c_layout_local_shape(layout%handle, int(rank, c_int64_t), size(extents, kind=c_size_t), answer), ierr)
        extents = answer
    end subroutine

    ! Where an element is, its index counted from 0: the rank that owns it, and its address there, in elements from 0.
    subroutine reshard_layout_locate(layout, index, rank, address, ierr)
        type(reshard_layout), intent(in) :: layout
        integer(int64), intent(in) :: index(:)
        integer, intent(out) :: rank
        integer(int64), intent(out) :: address
        integer, intent(out), optional :: ierr
        integer(c_int64_t) :: owner
        owner = -1
        address = -1
        call conclude(c_layout_locate(layout%handle, size(index, kind=c_size_t), int(index, c_int64_t), owner, address), ierr)
        rank = int(owner)
    end subroutine

    ! The index in the whole array of an element of a rank's part, both counted from 0.
    subroutine reshard_layout_global_index(layout, rank, local_index, global_index, ierr)
        type(reshard_layout), intent(in) :: layout
        integer, intent(in) :: rank
        integer(int64), intent(in) :: local_index(:)
        integer(int64), intent(out) :: global_index(:)
        integer, intent(out), optional :: ierr
        integer(c_int64_t) :: answer(max(size(local_index), size(global_index)))
        answer = -1
        call conclude(c_layout_global_index(layout%handle, int(rank, c_int64_t), size(local_index, kind=c_size_t), &
            int(local_index, c_int64_t), answer), ierr)
        global_index = answer(:size(global_index))
    end subroutine

    subroutine reshard_layout_free(layout)
        type(reshard_layout), intent(inout) :: layout
        call c_layout_free(layout%handle)
        layout%handle = c_null_ptr
    end subroutine

    ! An empty plan.
    subroutine reshard_plan_new(plan, ierr)
        type(reshard_plan), intent(out) :: plan
        integer, intent(out), optional :: ierr
        call conclude(c_plan_new(plan%handle), ierr)
    end subroutine

    ! Adds an array to a plan, elements of so many bytes.
    subroutine plan_add_4(plan, from, to, element_bytes, ierr)
        type(reshard_plan), intent(in) :: plan
        type(reshard_layout), intent(in) :: from, to
        integer(c_int32_t), intent(in) :: element_bytes
        integer, intent(out), optional :: ierr
        call conclude(c_plan_add(plan%handle, from%handle, to%handle, int(element_bytes, c_size_t)), ierr)
    end subroutine

    subroutine plan_add_8(plan, from, to, element_bytes, ierr)
        type(reshard_plan), intent(in) :: plan
        type(reshard_layout), intent(in) :: from, to
        integer(c_int64_t), intent(in) :: element_bytes
        integer, intent(out), optional :: ierr
        call conclude(c_plan_add(plan%handle, from%handle, to%handle, int(element_bytes, c_size_t)), ierr)
    end subroutine

    ! As reshard_plan_add, for a window: `extents` of the source from index `begin` on move into the destination from index `into` on;
    ! destination axis j takes source axis axes(j); of a matrix perhaps only a triangle, up to or from a diagonal. All count from 0;
    ! what is left out is all of the source, the beginning, axes as they are.
    subroutine reshard_plan_add_window(plan, from, to, element_bytes, extents, begin, into, axes, triangle, diagonal, ierr)
        type(reshard_plan), intent(in) :: plan
        type(reshard_layout), intent(in) :: from, to
        integer, intent(in) :: element_bytes
        integer(int64), intent(in), optional, contiguous, target :: extents(:), begin(:), into(:), axes(:)
        integer, intent(in), optional :: triangle, diagonal
        integer, intent(out), optional :: ierr
        type(c_window) :: window
        integer(c_size_t) :: given(4)
        given = -1
        if (present(extents)) given(1) = size(extents, kind=c_size_t)
        if (present(begin)) given(2) = size(begin, kind=c_size_t)
        if (present(into)) given(3) = size(into, kind=c_size_t)
        if (present(axes)) given(4) = size(axes, kind=c_size_t)
        ! Lists of different lengths are of none, which the library refuses.
        window%dims = max(maxval(given), 0_c_size_t)
        if (any(given /= -1 .and. given /= window%dims)) window%dims = 0
        if (present(extents)) window%extents = c_loc(extents)
        if (present(begin)) window%from = c_loc(begin)
        if (present(into)) window%to = c_loc(into)
        if (present(axes)) window%axes = c_loc(axes)
        if (present(triangle)) window%triangle = int(triangle, c_int)
        if (present(diagonal)) window%diagonal = int(diagonal, c_int64_t)
        call conclude(c_plan_add_window(plan%handle, from%handle, to%handle, int(element_bytes, c_size_t), window), ierr)
    end subroutine

    ! Bytes of memory of a rank's source part of array number `array`, counted from 0.
    subroutine reshard_plan_source_bytes(plan, array, rank, bytes, ierr)
        type(reshard_plan), intent(in) :: plan
        integer, intent(in) :: array, rank
        integer(c_size_t), intent(out) :: bytes
        integer, intent(out), optional :: ierr
        bytes = 0
        call conclude(c_plan_source_bytes(plan%handle, int(array, c_size_t), int(rank, c_int64_t), bytes), ierr)
    end subroutine

    ! Bytes of memory of a rank's destination part of array number `array`, counted from 0.
    subroutine reshard_plan_target_bytes(plan, array, rank, bytes, ierr)
        type(reshard_plan), intent(in) :: plan
        integer, intent(in) :: array, rank
        integer(c_size_t), intent(out) :: bytes
        integer, intent(out), optional :: ierr
        bytes = 0
        call conclude(c_plan_target_bytes(plan%handle, int(array, c_size_t), int(rank, c_int64_t), bytes), ierr)
    end subroutine

    subroutine reshard_plan_free(plan)
        type(reshard_plan), intent(inout) :: plan
        call c_plan_free(plan%handle)
        plan%handle = c_null_ptr
    end subroutine

    ! An engine with all ranks in this process.
    subroutine reshard_engine_threads(plan, engine, options, ierr)
        type(reshard_plan), intent(in) :: plan
        type(reshard_engine), intent(out) :: engine
        character(*), intent(in), optional :: options
        integer, intent(out), optional :: ierr
        call conclude(c_engine_threads(plan%handle, c_text(options), engine%handle), ierr)
    end subroutine

    ! An engine between the ranks of a communicator. Collective.
    subroutine reshard_engine_mpi(plan, comm, engine, options, ierr)
        type(reshard_plan), intent(in) :: plan
        integer, intent(in) :: comm
        type(reshard_engine), intent(out) :: engine
        character(*), intent(in), optional :: options
        integer, intent(out), optional :: ierr
        call conclude(c_engine_fortran(plan%handle, int(comm, c_int32_t), c_text(options), engine%handle), ierr)
    end subroutine

    ! Moves one array of which this process has one source part and one destination part.
    subroutine reshard_engine_run(engine, from, from_bytes, to, to_bytes, ierr)
        type(reshard_engine), intent(in) :: engine
        type(*), dimension(*), intent(in) :: from
        integer(c_size_t), intent(in) :: from_bytes, to_bytes
        type(*), dimension(*), intent(inout) :: to
        integer, intent(out), optional :: ierr
        call conclude(c_engine_run(engine%handle, from, from_bytes, to, to_bytes), ierr)
    end subroutine

    ! The destination becomes alpha * source + beta * destination: reshard_factor(2d0) and reshard_factor(-1d0) for double precision.
    subroutine reshard_engine_run_scaled(engine, alpha, from, from_bytes, beta, to, to_bytes, ierr)
        type(reshard_engine), intent(in) :: engine
        type(reshard_factor), intent(in) :: alpha, beta
        type(*), dimension(*), intent(in) :: from
        integer(c_size_t), intent(in) :: from_bytes, to_bytes
        type(*), dimension(*), intent(inout) :: to
        integer, intent(out), optional :: ierr
        integer(c_int) :: element_type
        ! Two types are none, which the library refuses.
        element_type = merge(alpha%element_type, -1_c_int, alpha%element_type == beta%element_type)
        call conclude(c_engine_run_scaled(engine%handle, element_type, alpha%bits, from, from_bytes, beta%bits, to, &
            to_bytes), ierr)
    end subroutine

    pure function factor_f32(number) result(factor)
        real(c_float), intent(in) :: number
        type(reshard_factor) :: factor
        factor%element_type = RESHARD_F32
        factor%bits = transfer([number, 0.0_c_float, 0.0_c_float, 0.0_c_float], factor%bits)
    end function

    pure function factor_f64(number) result(factor)
        real(c_double), intent(in) :: number
        type(reshard_factor) :: factor
        factor%element_type = RESHARD_F64
        factor%bits = transfer([number, 0.0_c_double], factor%bits)
    end function

    pure function factor_complex_f32(number) result(factor)
        complex(c_float_complex), intent(in) :: number
        type(reshard_factor) :: factor
        factor%element_type = RESHARD_COMPLEX_F32
        factor%bits = transfer([number, (0.0_c_float, 0.0_c_float)], factor%bits)
    end function

    pure function factor_complex_f64(number) result(factor)
        complex(c_double_complex), intent(in) :: number
        type(reshard_factor) :: factor
        factor%element_type = RESHARD_COMPLEX_F64
        factor%bits = transfer(number, factor%bits)
    end function

    ! Moves all arrays of a plan: from(k) and to(k) are this process's parts of array k.
    subroutine reshard_engine_run_arrays(engine, from, to, ierr)
        type(reshard_engine), intent(in) :: engine
        type(reshard_part), intent(in), contiguous, target :: from(:), to(:)
        integer, intent(out), optional :: ierr
        type(c_array) :: arrays(max(size(from), size(to)))
        call list_arrays(from, to, arrays)
        call conclude(c_engine_run_arrays(engine%handle, arrays, size(arrays, kind=c_size_t)), ierr)
    end subroutine

    ! Moves one array of which all parts are in this process, by ascending rank: for engines of threads.
    subroutine reshard_engine_run_parts(engine, from, to, ierr)
        type(reshard_engine), intent(in) :: engine
        type(reshard_part), intent(in), contiguous, target :: from(:), to(:)
        integer, intent(out), optional :: ierr
        type(c_array) :: array(1)
        if (size(from) > 0) array(1)%from = c_loc(from)
        if (size(to) > 0) array(1)%to = c_loc(to)
        array(1)%from_count = size(from, kind=c_size_t)
        array(1)%to_count = size(to, kind=c_size_t)
        call conclude(c_engine_run_arrays(engine%handle, array, 1_c_size_t), ierr)
    end subroutine

    ! Begins to move one array. Until the run is over both arrays stay as they are. A section that is not contiguous is refused: of any other
    ! kind of argument the compiler would pass a copy, which is gone when this returns.
    subroutine reshard_engine_start(engine, from, from_bytes, to, to_bytes, run, ierr)
        type(reshard_engine), intent(in) :: engine
        type(*), dimension(..), intent(in), asynchronous, target :: from
        integer(c_size_t), intent(in) :: from_bytes, to_bytes
        type(*), dimension(..), intent(inout), asynchronous, target :: to
        type(reshard_run), intent(out) :: run
        integer, intent(out), optional :: ierr
        character(*), parameter :: why = " was given to reshard_engine_start as a section that is not contiguous, and a run in " &
            //"flight uses arrays where they are; give a contiguous array, or call reshard_engine_run, which takes a copy"
        if (.not. is_contiguous(from)) then
            call conclude(c_engine_refuse(engine%handle, c_text("from"//why)), ierr)
        else if (.not. is_contiguous(to)) then
            call conclude(c_engine_refuse(engine%handle, c_text("to"//why)), ierr)
        else
            call conclude(c_engine_start(engine%handle, c_loc(from), from_bytes, c_loc(to), to_bytes, run%handle), ierr)
        end if
    end subroutine

    ! Begins to move all arrays of a plan: from(k) and to(k) are this process's parts of array k.
    subroutine reshard_engine_start_arrays(engine, from, to, run, ierr)
        type(reshard_engine), intent(in) :: engine
        type(reshard_part), intent(in), contiguous, target :: from(:), to(:)
        type(reshard_run), intent(out) :: run
        integer, intent(out), optional :: ierr
        type(c_array) :: arrays(max(size(from), size(to)))
        call list_arrays(from, to, arrays)
        call conclude(c_engine_start_arrays(engine%handle, arrays, size(arrays, kind=c_size_t), run%handle), ierr)
    end subroutine

    ! Arrays of one part on each side; one that is missing on a side has none there.
    subroutine list_arrays(from, to, arrays)
        type(reshard_part), intent(in), contiguous, target :: from(:), to(:)
        type(c_array), intent(inout) :: arrays(:)
        integer :: k
        do k = 1, size(from)
            arrays(k)%from = c_loc(from(k))
            arrays(k)%from_count = 1
        end do
        do k = 1, size(to)
            arrays(k)%to = c_loc(to(k))
            arrays(k)%to_count = 1
        end do
    end subroutine

    subroutine reshard_engine_free(engine)
        type(reshard_engine), intent(inout) :: engine
        call c_engine_free(engine%handle)
        engine%handle = c_null_ptr
    end subroutine

    ! Moves what can be moved without waiting; whether the run is over.
    subroutine reshard_run_test(run, done, ierr)
        type(reshard_run), intent(in) :: run
        logical, intent(out) :: done
        integer, intent(out), optional :: ierr
        integer(c_int) :: over
        over = 0
        call conclude(c_run_test(run%handle, over), ierr)
        done = over /= 0
    end subroutine

    ! Waits until the run is over.
    subroutine reshard_run_wait(run, ierr)
        type(reshard_run), intent(in) :: run
        integer, intent(out), optional :: ierr
        call conclude(c_run_wait(run%handle), ierr)
    end subroutine

    ! Waits until all of the runs are over, whichever ends first.
    subroutine reshard_run_wait_all(runs, ierr)
        type(reshard_run), intent(in) :: runs(:)
        integer, intent(out), optional :: ierr
        type(c_ptr) :: handles(size(runs))
        integer :: k
        do k = 1, size(runs)
            handles(k) = runs(k)%handle
        end do
        call conclude(c_run_wait_all(handles, size(runs, kind=c_size_t)), ierr)
    end subroutine

    ! Frees a run; one that is in flight is waited for first.
    subroutine reshard_run_free(run)
        type(reshard_run), intent(inout) :: run
        call c_run_free(run%handle)
        run%handle = c_null_ptr
    end subroutine

    ! A ring with all processes in this one.
    subroutine reshard_ring_threads(loads, targets, item_bytes, ring, options, ierr)
        integer(int64), intent(in), contiguous, target :: loads(:), targets(:)
        integer(c_size_t), intent(in) :: item_bytes
        type(reshard_ring), intent(out) :: ring
        character(*), intent(in), optional :: options
        integer, intent(out), optional :: ierr
        call conclude(c_ring_threads(loads_of(loads, targets, item_bytes), c_text(options), ring%handle), ierr)
    end subroutine

    ! A ring between the ranks of a communicator. Collective.
    subroutine reshard_ring_mpi(loads, targets, item_bytes, comm, ring, options, ierr)
        integer(int64), intent(in), contiguous, target :: loads(:), targets(:)
        integer(c_size_t), intent(in) :: item_bytes
        integer, intent(in) :: comm
        type(reshard_ring), intent(out) :: ring
        character(*), intent(in), optional :: options
        integer, intent(out), optional :: ierr
        call conclude(c_ring_fortran(loads_of(loads, targets, item_bytes), int(comm, c_int32_t), c_text(options), &
            ring%handle), ierr)
    end subroutine

    ! The loads as C wants them; lists of different lengths are none.
    function loads_of(loads, targets, item_bytes) result(stated)
        integer(int64), intent(in), contiguous, target :: loads(:), targets(:)
        integer(c_size_t), intent(in) :: item_bytes
        type(c_loads) :: stated
        stated%processes = size(loads, kind=c_size_t)
        stated%item_bytes = item_bytes
        if (size(loads) > 0) stated%loads = c_loc(loads)
        if (size(targets) == size(loads) .and. size(loads) > 0) stated%targets = c_loc(targets)
    end function

    ! Items for which a process needs room.
    subroutine reshard_ring_room(ring, process, items, ierr)
        type(reshard_ring), intent(in) :: ring
        integer, intent(in) :: process
        integer(c_size_t), intent(out) :: items
        integer, intent(out), optional :: ierr
        items = 0
        call conclude(c_ring_room(ring%handle, int(process, c_int64_t), items), ierr)
    end subroutine

    ! Moves the items of a ring between processes, in place.
    subroutine reshard_ring_run(ring, part, bytes, ierr)
        type(reshard_ring), intent(in) :: ring
        type(*), dimension(*), intent(inout), target :: part
        integer(c_size_t), intent(in) :: bytes
        integer, intent(out), optional :: ierr
        call reshard_ring_run_parts(ring, [reshard_part(c_loc(part), bytes)], ierr)
    end subroutine

    ! Moves the items of a ring in one process, in place: the parts of all processes.
    subroutine reshard_ring_run_parts(ring, parts, ierr)
        type(reshard_ring), intent(in) :: ring
        type(reshard_part), intent(in), contiguous, target :: parts(:)
        integer, intent(out), optional :: ierr
        call conclude(c_ring_run(ring%handle, parts, size(parts, kind=c_size_t)), ierr)
    end subroutine

    subroutine reshard_ring_free(ring)
        type(reshard_ring), intent(inout) :: ring
        call c_ring_free(ring%handle)
        ring%handle = c_null_ptr
    end subroutine
end module
