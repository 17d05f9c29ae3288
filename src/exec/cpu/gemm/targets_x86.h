// Functions are compiled for instructions that a processor may lack, and called where it has them.
// (tests/exec/emulated has another such file, for a processor that lacks all of them.) Every
// processor with AMX has AVX-512-BF16. A function for AMX may multiply bf16 or i8; its caller knows
// which of them the processor needs.
#pragma once

#define TESSERA_X86 x86  // an inline namespace, so that a program may have both

#define TESSERA_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define TESSERA_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
#define TESSERA_AMX                                                                 \
  __attribute__((                                                                   \
      target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,amx-tile,amx-bf16," \
             "amx-int8")))
