# The package reshard: find_package(reshard), then link with reshard::reshard (C and Fortran), reshard::static, or, before
# ScaLAPACK, reshard::scalapack or reshard::scalapack_ilp64. RESHARD_FORTRAN_MODULE is the module's source, to be compiled with the program.

get_filename_component(_reshard_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

foreach(_reshard_target reshard scalapack scalapack_ilp64)
    if(NOT TARGET reshard::${_reshard_target})
        set(_reshard_name libreshard_${_reshard_target})
        if(_reshard_target STREQUAL "reshard")
            set(_reshard_name libreshard)
        endif()
        add_library(reshard::${_reshard_target} SHARED IMPORTED)
        set_target_properties(reshard::${_reshard_target} PROPERTIES
            IMPORTED_LOCATION "${_reshard_prefix}/lib/${_reshard_name}.so.@VERSION@"
            IMPORTED_SONAME "${_reshard_name}.so.@ABI@")
    endif()
endforeach()
if(NOT TARGET reshard::static)
    add_library(reshard::static STATIC IMPORTED)
    set_target_properties(reshard::static PROPERTIES
        IMPORTED_LOCATION "${_reshard_prefix}/lib/libreshard.a"
        INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
set_property(TARGET reshard::reshard reshard::static
    PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${_reshard_prefix}/include")

set(RESHARD_FORTRAN_MODULE "${_reshard_prefix}/include/reshard.f90")

unset(_reshard_name)
unset(_reshard_target)
unset(_reshard_prefix)
