/* PyTorch's fp32 products are MKL's, and MKL takes its AVX-512 kernels only where this function says that the processor is Intel's.
   Preloaded, it says so of every processor: on AMD's Zen 4 the products become 10 to 20 % faster, and a slower PyTorch would be no
   fair opponent. pytorch_step.py compiles and preloads it on AMD processors with AVX-512. */
int mkl_serv_intel_cpu_true(void) { return 1; }
