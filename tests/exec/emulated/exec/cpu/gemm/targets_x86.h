// In the place of src/exec/cpu/gemm/targets_x86.h: plain functions.
#pragma once

#define TESSERA_AVX512
#define TESSERA_AVX512_BF16
#define TESSERA_AMX
