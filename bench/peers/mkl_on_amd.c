/* PyTorch's fp32 products use MKL, and MKL uses its AVX-512 kernels only if this function reports an Intel processor.
   Preloaded, it does so for every processor: on AMD's Zen 4 the products become 10 to 20 % faster, and without it the comparison
   would be unfair to PyTorch. pytorch_step.py compiles and preloads it on AMD processors with AVX-512. */
int mkl_serv_intel_cpu_true(void) { return 1; }
