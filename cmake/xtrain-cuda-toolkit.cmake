# Requirements of compiling the cuda device, NCCL and cuDNN. Used by xtrain_add_cuda_kernels, the components 'cuda', 'nccl' and 'cudnn', and the trainers.

# _xtrain_find_cuda(<result>): finds CUDAToolkit; sets <result> to a sentence about the missing part, or empty
macro(_xtrain_find_cuda result)
  set(${result} "")
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_NVCC_EXECUTABLE OR NOT TARGET CUDA::cudart_static)
    set(${result} "needs nvcc and CUDA's runtime library (NVIDIA's packages: cuda-nvcc-13-0, cuda-cudart-dev-13-0, cuda-crt-13-0); pass -D \
CUDAToolkit_ROOT=<folder> if they are in an unusual folder")
  elseif(CUDAToolkit_VERSION VERSION_LESS 12.0)
    set(${result} "needs nvcc 12.0 or newer, for C++20; found: ${CUDAToolkit_VERSION}")
  endif()
endmacro()

# _xtrain_find_nccl(<result>): the same for NCCL's library, which programs load at run time: the compiling machine need not have it
macro(_xtrain_find_nccl result)
  set(${result} "")
  find_library(XTRAIN_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS /usr/local/cuda/lib64 /usr/local/cuda/lib DOC "NCCL's library")
  if(NOT XTRAIN_NCCL_LIBRARY)
    set(${result} "needs NCCL's library, libnccl.so.2 (Debian's non-free and NVIDIA's package: libnccl2)")
  endif()
endmacro()

# _xtrain_find_cudnn(<result>): the same for the headers of cuDNN and cudnn-frontend. Programs load cuDNN's library at run time.
macro(_xtrain_find_cudnn result)
  set(${result} "")
  find_path(XTRAIN_CUDNN_FRONTEND cudnn_frontend.h DOC "The folder of cudnn-frontend's headers")
  find_path(XTRAIN_CUDNN_HEADER cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include DOC "The folder of cuDNN's headers")
  find_path(XTRAIN_CUDA_HEADER cuda_runtime.h HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include DOC "The folder of CUDA's headers")
  if(NOT XTRAIN_CUDNN_FRONTEND)
    set(${result} "needs the headers of cudnn-frontend 1 (PyPI: nvidia-cudnn-frontend); pass -D XTRAIN_CUDNN_FRONTEND=<folder of cudnn_frontend.h>")
  elseif(NOT XTRAIN_CUDNN_HEADER OR NOT XTRAIN_CUDA_HEADER)
    set(${result} "needs the headers of cuDNN 9 and of CUDA's runtime (NVIDIA's packages: libcudnn9-dev-cuda-13, cuda-cudart-dev-13-0)")
  endif()
endmacro()
