// This file takes the place of src/exec/cpu/gemm/targets_x86.h: functions are plain ones.
#pragma once

#define TESSERA_X86 emulated_x86
#define TESSERA_AVX512
#define TESSERA_AVX512_BF16
#define TESSERA_AMX
