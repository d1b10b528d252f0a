# ArrowParquet::ArrowParquet, Apache Arrow's C++ library with Parquet: from the folder ARROW_ROOT (variable or environment), Arrow's own package, or the Python
# package pyarrow. It must link a program.
if(TARGET ArrowParquet::ArrowParquet)
  set(ArrowParquet_FOUND TRUE)
  return()
endif()

# Sets `result`: whether a program links with these headers and libraries. Reports why not.
function(_arrow_links result where headers)
  if(ArrowParquet_LINKS STREQUAL "${headers};${ARGN}")  # as the last time
    set(${result} TRUE PARENT_SCOPE)
    return()
  endif()
  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  try_compile(links SOURCE_FROM_CONTENT arrow_links.cpp [[
#include <arrow/api.h>
#include <parquet/arrow/reader.h>
int main() {
  parquet::arrow::FileReaderBuilder builder;
  return arrow::default_memory_pool()->bytes_allocated() < 0 ? 1 : 0;
}
]] CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${headers}" LINK_LIBRARIES ${ARGN} OUTPUT_VARIABLE said NO_CACHE)
  if(links)
    set(ArrowParquet_LINKS "${headers};${ARGN}" CACHE INTERNAL "headers and libraries of Arrow that a program can be linked with")
  else()
    string(REGEX MATCHALL "[^\n]*(error|undefined reference|cannot find|not found)[^\n]*" problems "${said}")
    list(SUBLIST problems 0 3 problems)
    list(JOIN problems "\n  " problems)
    message(WARNING "Apache Arrow is in ${where}, but a program cannot be linked with it; it is not used. Is it made for this compiler and its standard "
                    "library, and are its other libraries beside it? ARROW_ROOT=FOLDER chooses another one.\n  ${problems}")
  endif()
  set(${result} ${links} PARENT_SCOPE)
endfunction()

set(_arrow_roots ${ARROW_ROOT} $ENV{ARROW_ROOT})
if(NOT _arrow_roots)
  find_package(Arrow QUIET CONFIG)
  if(TARGET Arrow::arrow_shared)
    find_package(Parquet QUIET CONFIG)
  endif()
  set(_arrow_linkable FALSE)
  if(TARGET Arrow::arrow_shared AND TARGET Parquet::parquet_shared)
    _arrow_links(_arrow_linkable "${Arrow_DIR}" "" Parquet::parquet_shared Arrow::arrow_shared)
  endif()
  if(_arrow_linkable)
    add_library(ArrowParquet::ArrowParquet INTERFACE IMPORTED)
    set_target_properties(ArrowParquet::ArrowParquet PROPERTIES INTERFACE_LINK_LIBRARIES "Parquet::parquet_shared;Arrow::arrow_shared")
    set(ArrowParquet_FOUND TRUE)
    return()
  endif()
endif()
if(NOT _arrow_roots AND NOT ARROW_LIBRARY)
  find_program(ARROW_PYTHON python3)
  if(ARROW_PYTHON)
    execute_process(COMMAND "${ARROW_PYTHON}" -c "import pyarrow; print(pyarrow.get_include()); print(pyarrow.get_library_dirs()[0])"
                    OUTPUT_VARIABLE _arrow_said RESULT_VARIABLE _arrow_status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(_arrow_status EQUAL 0)
      string(REPLACE "\n" ";" _arrow_roots "${_arrow_said}")
    endif()
  endif()
endif()
# a wheel has libarrow.so with a version suffix only; headers are in include/
set(_arrow_names arrow)
set(_parquet_names parquet)
foreach(_arrow_root IN LISTS _arrow_roots)
  file(GLOB _arrow_files RELATIVE "${_arrow_root}" "${_arrow_root}/libarrow.so.*")
  file(GLOB _parquet_files RELATIVE "${_arrow_root}" "${_arrow_root}/libparquet.so.*")
  list(APPEND _arrow_names ${_arrow_files})
  list(APPEND _parquet_names ${_parquet_files})
endforeach()
find_path(ARROW_INCLUDE_DIR parquet/arrow/reader.h HINTS ${_arrow_roots} PATH_SUFFIXES include)
find_library(ARROW_LIBRARY NAMES ${_arrow_names} HINTS ${_arrow_roots} PATH_SUFFIXES lib lib64)
find_library(PARQUET_LIBRARY NAMES ${_parquet_names} HINTS ${_arrow_roots} PATH_SUFFIXES lib lib64)
set(_arrow_linkable TRUE)
if(ARROW_INCLUDE_DIR AND ARROW_LIBRARY AND PARQUET_LIBRARY)
  _arrow_links(_arrow_linkable "${ARROW_LIBRARY}" "${ARROW_INCLUDE_DIR}" "${PARQUET_LIBRARY}" "${ARROW_LIBRARY}")
endif()
if(_arrow_linkable)
  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(ArrowParquet REQUIRED_VARS PARQUET_LIBRARY ARROW_LIBRARY ARROW_INCLUDE_DIR)
else()  # the warning has said why
  set(ArrowParquet_FOUND FALSE)
  if(ArrowParquet_FIND_REQUIRED)
    message(FATAL_ERROR "ArrowParquet is required: libraries that a program can be linked with")
  endif()
endif()
if(ArrowParquet_FOUND)
  add_library(ArrowParquet::ArrowParquet UNKNOWN IMPORTED)
  set_target_properties(ArrowParquet::ArrowParquet PROPERTIES IMPORTED_LOCATION "${PARQUET_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ARROW_INCLUDE_DIR}"
                                                              INTERFACE_LINK_LIBRARIES "${ARROW_LIBRARY}")
endif()
mark_as_advanced(ARROW_PYTHON ARROW_INCLUDE_DIR ARROW_LIBRARY PARQUET_LIBRARY)
