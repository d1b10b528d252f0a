# A program's own build finds the installed package with Apache Arrow, and what it reads is right.
#   ARROW_ROOT   where Arrow is, if that has been said
include("${CMAKE_CURRENT_LIST_DIR}/package.cmake")
include("${prefix}/share/cmake/xtrain/xtrain-config-version.cmake")
file(REMOVE_RECURSE "${SCRATCH}/parquet" "${SCRATCH}/records")
set(where "")
if(ARROW_ROOT)
  set(where -D "ARROW_ROOT=${ARROW_ROOT}")
endif()
configures("${consumers}/parquet" parquet -D xtrain_ROOT=${prefix} -D XTRAIN_VERSION=${PACKAGE_VERSION} ${where})
builds(parquet)
must_run("${SCRATCH}/parquet/convert_records" "${SCRATCH}/records")
if(NOT said MATCHES "all records are right")
  message(FATAL_ERROR "convert_records must say that all is right; it said: ${said}")
endif()

# What is found but cannot be linked is not taken, and the message says why.
file(WRITE "${SCRATCH}/not_arrow/include/parquet/arrow/reader.h" "#error this is not Arrow\n")
file(WRITE "${SCRATCH}/not_arrow/include/arrow/api.h" "#error this is not Arrow\n")
file(WRITE "${SCRATCH}/not_arrow/lib/libarrow.so" "")
file(WRITE "${SCRATCH}/not_arrow/lib/libparquet.so" "")
foreach(sentence "a program cannot be linked with it" "error: #error this is not Arrow" "The component 'parquet' needs Apache Arrow")
  refuses("${consumers}/parquet" not_linked "${sentence}" -D xtrain_ROOT=${prefix} -D XTRAIN_VERSION=${PACKAGE_VERSION}
          -D "ARROW_ROOT=${SCRATCH}/not_arrow")
endforeach()
