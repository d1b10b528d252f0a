# Debian wants the license at doc/<package>/copyright.
set(doc "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc")
if(NOT EXISTS "${doc}/xtrain/LICENSE")
  message(FATAL_ERROR "there must be ${doc}/xtrain/LICENSE")
endif()
file(MAKE_DIRECTORY "${doc}/libxtrain-dev")
file(RENAME "${doc}/xtrain/LICENSE" "${doc}/libxtrain-dev/copyright")
file(REMOVE_RECURSE "${doc}/xtrain")
