# The interface targets, built from the header lists. Linking one says which headers a program may include.

function(xtrain_interface_target name export_name)
  add_library(${name} INTERFACE)
  add_library(xtrain::${export_name} ALIAS ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${export_name})
  target_compile_features(${name} INTERFACE cxx_std_20)
  if(ARGN)
    list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/include/" OUTPUT_VARIABLE files)
    target_sources(${name} INTERFACE FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${files})
  endif()
endfunction()

# xtrain_target_macro(<target> <macro>): set for programs that find or add this project. Headers then know which components a target links.
function(xtrain_target_macro target macro)
  target_compile_definitions(${target} INTERFACE $<INSTALL_INTERFACE:${macro}>)
  if(NOT PROJECT_IS_TOP_LEVEL)
    target_compile_definitions(${target} INTERFACE $<BUILD_INTERFACE:${macro}>)
  endif()
endfunction()

# xtrain_component_needs(<component> <target>...): links what the component needs. Where that was not found, the sentence that says
# so is linked in its place: CMake takes an item with :: for a target, and shows it to a program that links the component.
function(xtrain_component_needs component)
  set(sentence "${XTRAIN_MISSING_${component}}")
  if(sentence)
    set_target_properties(xtrain_${component} PROPERTIES XTRAIN_MISSING "${sentence}")
    target_link_libraries(xtrain_${component} INTERFACE "$<BUILD_INTERFACE:xtrain::${component} cannot be linked. ${sentence}>"
                                                        "$<INSTALL_INTERFACE:${ARGN}>")
  else()
    target_link_libraries(xtrain_${component} INTERFACE ${ARGN})
  endif()
endfunction()

# The core: xtensor, xsimd, threads.
xtrain_interface_target(xtrain xtrain ${XTRAIN_CORE_HEADERS})
target_link_libraries(xtrain INTERFACE xtensor xsimd Threads::Threads)
xtrain_target_macro(xtrain XTRAIN_TARGET)

# Files: safetensors, Hugging Face folders, JSON data sets.
xtrain_interface_target(xtrain_io io ${XTRAIN_IO_HEADERS})
target_link_libraries(xtrain_io INTERFACE xtrain)
xtrain_target_macro(xtrain_io XTRAIN_TARGET_IO)
xtrain_component_needs(io nlohmann_json::nlohmann_json)

# Tokenizers with vocabularies.
xtrain_interface_target(xtrain_text text ${XTRAIN_TEXT_HEADERS})
target_link_libraries(xtrain_text INTERFACE xtrain_io)
xtrain_target_macro(xtrain_text XTRAIN_TARGET_TEXT)
xtrain_component_needs(text PCRE2::8BIT Utf8proc::utf8proc)

# Ranks that are processes.
xtrain_interface_target(xtrain_mpi mpi ${XTRAIN_MPI_HEADERS})
target_link_libraries(xtrain_mpi INTERFACE xtrain)
xtrain_target_macro(xtrain_mpi XTRAIN_TARGET_MPI)
xtrain_component_needs(mpi MPI::MPI_CXX)

# OpenMP's team of threads instead of the library's own.
xtrain_interface_target(xtrain_openmp openmp ${XTRAIN_OPENMP_HEADERS})
target_link_libraries(xtrain_openmp INTERFACE xtrain)
xtrain_component_needs(openmp OpenMP::OpenMP_CXX)

# Records of Parquet and Arrow files.
xtrain_interface_target(xtrain_parquet parquet ${XTRAIN_PARQUET_HEADERS})
target_link_libraries(xtrain_parquet INTERFACE xtrain_io)
xtrain_component_needs(parquet ArrowParquet::ArrowParquet)

# Runs as data, and what other systems' configs and flags become.
xtrain_interface_target(xtrain_recipes recipes ${XTRAIN_RECIPES_HEADERS})
target_link_libraries(xtrain_recipes INTERFACE xtrain_io)
xtrain_component_needs(recipes $<IF:$<TARGET_EXISTS:yaml-cpp::yaml-cpp>,yaml-cpp::yaml-cpp,yaml-cpp>)

# The processor that compiles is the processor that runs. Never part of xtrain::xtrain.
xtrain_interface_target(xtrain_native native)
target_compile_options(xtrain_native INTERFACE -march=native)
