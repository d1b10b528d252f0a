// The reverse of a port: MUSA's names, as the library writes them, for CUDA's. With it nvcc compiles and links what mcc is to compile.
#pragma once

#include <cuda_runtime.h>

#define musaError_t cudaError_t
#define musaGetDevice cudaGetDevice
#define musaGetLastError cudaGetLastError
#define musaGetErrorName cudaGetErrorName
#define musaGetErrorString cudaGetErrorString
#define musaFuncSetAttribute cudaFuncSetAttribute
#define musaFuncAttributeMaxDynamicSharedMemorySize cudaFuncAttributeMaxDynamicSharedMemorySize
