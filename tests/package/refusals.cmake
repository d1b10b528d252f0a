# Unsatisfiable requests are refused with a sentence. Each refusal is paired with an accepted request, to exclude other reasons.
include("${CMAKE_CURRENT_LIST_DIR}/package.cmake")
include("${prefix}/share/cmake/xtrain/xtrain-config-version.cmake")
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" version "${PACKAGE_VERSION}")
set(major ${CMAKE_MATCH_1})
math(EXPR next "${CMAKE_MATCH_2} + 1")
file(REMOVE_RECURSE "${SCRATCH}/asking" "${SCRATCH}/asking_folder")

# Every case sets everything: build folders are reused.
set(everything -D ASK= -D EXPECT= -D LINK= -D TRAINER= -D FRONT_ENDS= -D CMAKE_DISABLE_FIND_PACKAGE_PCRE2=OFF -D CMAKE_DISABLE_FIND_PACKAGE_Utf8proc=OFF
    -D CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=OFF -D CMAKE_DISABLE_FIND_PACKAGE_xtensor=OFF -D CMAKE_DISABLE_FIND_PACKAGE_CLI11=OFF
    -D CMAKE_DISABLE_FIND_PACKAGE_MPI=OFF -D CMAKE_DISABLE_FIND_PACKAGE_yaml-cpp=OFF
    -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=OFF -D XTRAIN_GPU_REHEARSAL=OFF -D CMAKE_FIND_ROOT_PATH= -D CMAKE_FIND_ROOT_PATH_MODE_LIBRARY=)
macro(accepted)
  configures("${consumers}/asking" asking -D xtrain_ROOT=${prefix} ${everything} ${ARGN})
endmacro()
macro(refused sentence)
  refuses("${consumers}/asking" asking "${sentence}" -D xtrain_ROOT=${prefix} ${everything} ${ARGN})
endmacro()
macro(folder_accepted)
  configures("${consumers}/asking" asking_folder -D XTRAIN_SOURCE=${SOURCE} ${everything} ${ARGN})
endmacro()
macro(folder_refused sentence)
  refuses("${consumers}/asking" asking_folder "${sentence}" -D XTRAIN_SOURCE=${SOURCE} ${everything} ${ARGN})
endmacro()
set(no_pcre2 -D CMAKE_DISABLE_FIND_PACKAGE_PCRE2=ON)
set(no_utf8proc -D CMAKE_DISABLE_FIND_PACKAGE_Utf8proc=ON)
set(no_json -D CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON)
set(no_xtensor -D CMAKE_DISABLE_FIND_PACKAGE_xtensor=ON)
set(no_cli11 -D CMAKE_DISABLE_FIND_PACKAGE_CLI11=ON)
set(no_mpi -D CMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
set(no_yaml -D CMAKE_DISABLE_FIND_PACKAGE_yaml-cpp=ON)
set(mpi_missing "The component 'mpi' needs MPI (Debian and Ubuntu: libopenmpi-dev).")
set(pcre2_missing "The component 'text' needs PCRE2 (Debian and Ubuntu: libpcre2-dev).")

# Versions: while the major version is 0, each minor version is another interface.
accepted("-DASK=${version} REQUIRED" "-DEXPECT=TARGET xtrain::xtrain AND NOT TARGET xtrain::io" -D LINK=xtrain::xtrain)
refused("compatible with requested version \"${major}.${next}\"" "-DASK=${major}.${next} REQUIRED" -D LINK=xtrain::xtrain)
refused("compatible with requested version \"9\"" "-DASK=9 REQUIRED" -D LINK=xtrain::xtrain)

# Components. 'text' brings 'io'.
set(text "-DASK=REQUIRED COMPONENTS text")
accepted(${text} "-DEXPECT=xtrain_text_FOUND AND xtrain_io_FOUND AND TARGET xtrain::io AND NOT TARGET xtrain::native" -D LINK=xtrain::text)
refused("${pcre2_missing}" ${text} ${no_pcre2})
refused("The component 'text' needs utf8proc (Debian and Ubuntu: libutf8proc-dev)." ${text} ${no_utf8proc})
refused("The component 'text' needs nlohmann-json (Debian and Ubuntu: nlohmann-json3-dev)." ${text} ${no_json})
refused("xtrain needs xtensor 0.24 or newer (Debian and Ubuntu: libxtensor-dev)." ${text} ${no_xtensor})
refused("There is no component 'txt'; there are io, text, mpi, openmp, parquet, recipes, native, cuda, nccl, cudnn and npu." "-DASK=REQUIRED COMPONENTS txt")
set(must_ask "xtrain: the component 'text', which the target 'program' links, must be asked for; call find_package(xtrain REQUIRED COMPONENTS text)")
refused("${must_ask}" "-DASK=REQUIRED" -D LINK=xtrain::text)
refused("xtrain: find_package(xtrain) without COMPONENTS gives xtrain::xtrain alone; components are io, text, mpi," "-DASK=REQUIRED" -D LINK=xtrain::text)
refused("${must_ask}" "-DASK=REQUIRED COMPONENTS io" -D LINK=xtrain::text)
refused("xtrain: there is no xtrain::txt, which the target 'program' links; there are xtrain::xtrain, the components io, text," ${text} -D LINK=xtrain::txt)
refused("xtrain: xtrain::library, which the target 'program' links, must be made first; call xtrain_add_library()" ${text} -D LINK=xtrain::library)
if(MPI)
  accepted("-DASK=REQUIRED COMPONENTS mpi" "-DEXPECT=xtrain_mpi_FOUND AND TARGET xtrain::mpi AND NOT TARGET xtrain::io" -D LINK=xtrain::mpi)
endif()
refused("${mpi_missing}" "-DASK=REQUIRED COMPONENTS mpi" ${no_mpi})
set(recipes "-DASK=REQUIRED COMPONENTS recipes")
accepted(${recipes} "-DEXPECT=xtrain_recipes_FOUND AND xtrain_io_FOUND AND TARGET xtrain::recipes AND NOT TARGET xtrain::text" -D LINK=xtrain::recipes)
refused("The component 'recipes' needs yaml-cpp (Debian and Ubuntu: libyaml-cpp-dev)." ${recipes} ${no_yaml})
refused("The component 'recipes' needs nlohmann-json (Debian and Ubuntu: nlohmann-json3-dev)." ${recipes} ${no_json})
set(no_cuda -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
set(cuda_missing "needs nvcc and CUDA's runtime library (NVIDIA's packages: cuda-nvcc-13-0, cuda-cudart-dev-13-0, cuda-crt-13-0)")
refused("The component 'cuda' ${cuda_missing}" "-DASK=REQUIRED COMPONENTS cuda" ${no_cuda})
accepted("-DASK=REQUIRED OPTIONAL_COMPONENTS cuda nccl" "-DEXPECT=NOT xtrain_cuda_FOUND AND NOT xtrain_nccl_FOUND" -D LINK=xtrain::xtrain ${no_cuda}
         -D XTRAIN_NCCL_LIBRARY=XTRAIN_NCCL_LIBRARY-NOTFOUND -D CMAKE_FIND_ROOT_PATH=${SCRATCH} -D CMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY)
string(FIND "${said}" "xtrain without 'nccl': The component 'nccl' needs NCCL's library, libnccl.so.2 (Debian's non-free and NVIDIA's package: libnccl2)." at)
if(at EQUAL -1)
  message(FATAL_ERROR "the configuration must say why 'nccl' was left out; it said: ${said}")
endif()
set(no_cudnn -D XTRAIN_CUDNN_FRONTEND=XTRAIN_CUDNN_FRONTEND-NOTFOUND -D CMAKE_FIND_ROOT_PATH=${SCRATCH} -D CMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY)
refused("The component 'cudnn' needs the headers of cudnn-frontend 1 (PyPI: nvidia-cudnn-frontend); pass -D XTRAIN_CUDNN_FRONTEND=<folder of cudnn_frontend.h>."
        "-DASK=REQUIRED COMPONENTS cudnn" ${no_cudnn})
accepted("-DASK=REQUIRED COMPONENTS cudnn" -DEXPECT=xtrain_cudnn_FOUND -D LINK=xtrain::xtrain -D XTRAIN_CUDNN_FRONTEND=/a/folder
         -D XTRAIN_CUDNN_HEADER=/a/folder -D XTRAIN_CUDA_HEADER=/a/folder)
file(WRITE "${SCRATCH}/toolkit/cuda_runtime.h" "")  # a toolkit that find_package has found in an unusual folder
accepted("-DASK=REQUIRED COMPONENTS cudnn" "-DEXPECT=XTRAIN_CUDA_HEADER STREQUAL \"${SCRATCH}/toolkit\"" -D LINK=xtrain::xtrain
         -D CUDAToolkit_INCLUDE_DIRS=${SCRATCH}/toolkit -D XTRAIN_CUDA_HEADER=XTRAIN_CUDA_HEADER-NOTFOUND)
find_program(nvcc nvcc HINTS /usr/local/cuda/bin)
if(nvcc)
  accepted("-DASK=REQUIRED COMPONENTS text cuda" -DEXPECT=xtrain_cuda_FOUND "-DTRAINER=NAME mine SOURCE pretrain.cpp DEVICE cuda")
endif()

# An unavailable optional component is left out, and the program can tell.
set(text_is_optional "-DASK=REQUIRED COMPONENTS io OPTIONAL_COMPONENTS text txt")
accepted(${text_is_optional} "-DEXPECT=xtrain_text_FOUND AND TARGET xtrain::text AND NOT xtrain_txt_FOUND" -D LINK=xtrain::text)
accepted(${text_is_optional} "-DEXPECT=xtrain_FOUND AND TARGET xtrain::io AND NOT xtrain_text_FOUND AND NOT TARGET xtrain::text" -D LINK=xtrain::io
         ${no_pcre2})
string(FIND "${said}" "xtrain without 'text': ${pcre2_missing}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "the configuration must say why 'text' was left out; it said: ${said}")
endif()

# Without REQUIRED the program decides.
accepted("-DASK=QUIET COMPONENTS text" "-DEXPECT=NOT xtrain_FOUND AND NOT TARGET xtrain::xtrain" ${no_pcre2})

# xtrain_add_trainer.
accepted(${text} "-DTRAINER=NAME mine SOURCE program.cpp PRECISION bf16_mixed")
refused("xtrain_add_trainer: NAME and SOURCE must be given; given were: SOURCE program.cpp" ${text} "-DTRAINER=SOURCE program.cpp")
refused("xtrain_add_trainer: NAME and SOURCE must be given; given were: NAME mine" ${text} "-DTRAINER=NAME mine")
refused("given was also: PRECISON bf16_mixed" ${text} "-DTRAINER=NAME mine SOURCE program.cpp PRECISON bf16_mixed")
refused("xtrain_add_trainer(mine): every argument must have a value; none was given to: PRECISION" ${text}
        "-DTRAINER=NAME mine SOURCE program.cpp PRECISION")
refused("SOURCE must be a file of yours or an example; 'nowhere.cpp' is neither" ${text} "-DTRAINER=NAME mine SOURCE nowhere.cpp")
refused("HEADERS must be files of yours; there is no '${consumers}/asking/nowhere.hpp'" ${text}
        "-DTRAINER=NAME mine SOURCE program.cpp HEADERS nowhere.hpp")
refused("the trainers need the component 'text'; call find_package(xtrain COMPONENTS text)" "-DASK=REQUIRED COMPONENTS io"
        "-DTRAINER=NAME mine SOURCE program.cpp")
refused("the trainers' command lines need CLI11 (Debian and Ubuntu: libcli11-dev)" ${text} "-DTRAINER=NAME mine SOURCE program.cpp" ${no_cli11})
refused("xtrain_add_trainer(mine): DEVICE cuda ${cuda_missing}" ${text} "-DTRAINER=NAME mine SOURCE program.cpp DEVICE cuda" ${no_cuda})
accepted(${text} "-DTRAINER=NAME mine SOURCE program.cpp DEVICE cuda" -D XTRAIN_GPU_REHEARSAL=ON ${no_cuda})
set(musa_missing "needs mcc and libmusart of Moore Threads' MUSA SDK; pass -D MUSA_PATH=<folder> if it is not /usr/local/musa")
set(no_musa -D XTRAIN_MCC=XTRAIN_MCC-NOTFOUND -D MUSA_PATH=/a/folder)
refused("xtrain_add_trainer(mine): DEVICE musa ${musa_missing}" ${text} "-DTRAINER=NAME mine SOURCE program.cpp DEVICE musa" ${no_musa})
accepted(${text} "-DTRAINER=NAME mine SOURCE program.cpp DEVICE musa" -D XTRAIN_GPU_REHEARSAL=ON)

# xtrain_add_front_ends.
set(text_and_recipes "-DASK=REQUIRED COMPONENTS text recipes")
accepted(${text_and_recipes} "-DFRONT_ENDS=NAMES tune convert")
refused("xtrain_add_front_ends: NAMES must be among tune, megatron, hf_train, main_hf, preprocess_data, convert; given was also: tunes" ${text_and_recipes}
        "-DFRONT_ENDS=NAMES tunes")
refused("xtrain_add_front_ends: what starts trainers (tune, megatron) needs the component 'recipes'; call find_package(xtrain COMPONENTS text recipes)" ${text}
        "-DFRONT_ENDS=NAMES convert tune megatron")
refused("xtrain_add_front_ends: the programs' command lines need CLI11 (Debian and Ubuntu: libcli11-dev)" ${text} "-DFRONT_ENDS=NAMES convert" ${no_cli11})
refused("xtrain_add_front_ends: DEVICES must be among cpu, cuda, musa, npu; given was also: hip" ${text_and_recipes} "-DFRONT_ENDS=NAMES tune DEVICES hip")
refused("xtrain_add_front_ends: DEVICES musa ${musa_missing}" ${text_and_recipes} "-DFRONT_ENDS=NAMES tune DEVICES musa" ${no_musa})
refused("xtrain_add_front_ends: DEVICES cuda ${cuda_missing}" ${text_and_recipes} "-DFRONT_ENDS=NAMES tune DEVICES cuda" ${no_cuda})
if(nvcc)
  accepted(${text_and_recipes} "-DFRONT_ENDS=NAMES tune DEVICES cuda" -D XTRAIN_CUDA_ARCHITECTURES=90)
  file(READ "${SCRATCH}/asking/trainers.txt" told)
  if(NOT told MATCHES "cuda=nvcc [0-9.]+ for 90\ncuda_definitions=XTRAIN_CUDA_KERNELS\ncuda_libraries=/[^\n]*/libxtrain_cuda_kernels[.]a;/[^\n]*cudart_static")
    message(FATAL_ERROR "trainers.txt must say how trainers for cuda are compiled; it says: ${told}")
  endif()
endif()
accepted(${text_and_recipes} "-DFRONT_ENDS=NAMES main_hf DEVICES cuda musa" -D XTRAIN_GPU_REHEARSAL=ON ${no_cuda} ${no_musa})
file(READ "${SCRATCH}/asking/trainers.txt" told)
if(NOT told MATCHES "cuda=rehearsal\ncuda_definitions=XTRAIN_GPU_REHEARSAL\nmusa=rehearsal\nmusa_definitions=XTRAIN_GPU_REHEARSAL;XTRAIN_MUSA_REHEARSAL\n")
  message(FATAL_ERROR "trainers.txt must say how trainers for cuda and musa are compiled; it says: ${told}")
endif()
accepted(${text_and_recipes} "-DFRONT_ENDS=NAMES tune DEVICES musa" -D XTRAIN_MCC=/a/mcc -D XTRAIN_MUSART_LIBRARY=/a/libmusart.so)
file(READ "${SCRATCH}/asking/trainers.txt" told)
if(NOT told MATCHES "musa=/a/mcc for 22;31\nmusa_definitions=XTRAIN_MUSA_KERNELS\nmusa_libraries=/[^\n]*/libxtrain_musa_kernels[.]a;/a/libmusart[.]so;-ldl\n")
  message(FATAL_ERROR "trainers.txt must say how trainers for musa are compiled; it says: ${told}")
endif()
refused("LIBRARIES must be targets; there is no 'xtrain::library'" ${text_and_recipes} "-DFRONT_ENDS=NAMES tune LIBRARIES xtrain::library")
refused("trainers that are compiled on demand link no others; given was: PCRE2::8BIT" ${text_and_recipes} "-DFRONT_ENDS=NAMES tune LIBRARIES PCRE2::8BIT")

# The source as a folder: an incomplete component is refused when linked, not earlier.
folder_accepted(-D LINK=xtrain::text "-DTRAINER=NAME mine SOURCE generate.cpp")
folder_accepted(-D LINK=xtrain::io ${no_pcre2})
folder_refused("xtrain::text cannot be linked. ${pcre2_missing}" -D LINK=xtrain::text ${no_pcre2})
folder_refused("xtrain_add_trainer(mine): the trainers need the component 'text'. ${pcre2_missing}" -D LINK=xtrain::io
               "-DTRAINER=NAME mine SOURCE generate.cpp" ${no_pcre2})
folder_refused("xtrain_add_front_ends: what starts trainers (tune) needs the component 'recipes'. The component 'recipes' needs yaml-cpp" -D LINK=xtrain::io
               "-DFRONT_ENDS=NAMES tune" ${no_yaml})
folder_accepted(-D LINK=xtrain::xtrain ${no_json})
folder_refused("xtrain::io cannot be linked. The component 'io' needs nlohmann-json (Debian and Ubuntu: nlohmann-json3-dev)." -D LINK=xtrain::io ${no_json})
folder_accepted(-D LINK=xtrain::xtrain ${no_mpi})
folder_refused("xtrain::mpi cannot be linked. ${mpi_missing}" -D LINK=xtrain::mpi ${no_mpi})
folder_refused("xtrain needs xtensor 0.24 or newer (Debian and Ubuntu: libxtensor-dev)." -D LINK=xtrain::xtrain ${no_xtensor})
