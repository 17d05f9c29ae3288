// Facts that a plan must know of the executor that will run it: how bytes are aligned, which of
// them other ranks reach, what a step needs beside its operands, and which kernels there are.
// Convention: plain data and pure functions, so that a plan can be made and explained where no
// executor runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/op.h"

namespace tessera::plan {

// Bytes of workspace for one equation (0: none).
using WorkspaceRule = std::function<std::int64_t(
    ir::Op, const ir::Attrs&, const std::vector<ir::Type>& in, const std::vector<ir::Type>& out)>;

// An operand as a kernel would rather read it; what it says of the layout is part of a buffer's
// name.
struct PackedForm {
  std::int64_t bytes = 0;  // 0: as it is
  std::string layout;
  std::vector<int> with{};  // other operands that it is made of; they must stay as they are, too
};
using PackedRule = std::function<PackedForm(ir::Op, const ir::Attrs&,
                                            const std::vector<ir::Type>& in, int operand)>;

struct Target {
  std::string device = "none";  // its name, for messages
  std::int64_t alignment = 64;  // of every buffer and of every value in the arena, in bytes
  std::int64_t shared_half =
      4096;  // the half of the arena that other ranks reach is a multiple of it; 0: there is none
  // Copies of what a run is fed with and of what it leaves: with two, one run is fed while the one
  // before it is under way.
  int copies = 1;
  WorkspaceRule workspace{};  // empty: no equation needs any
  // Whether what a plan that changes no weights computes of them alone is kept (prepare.h), and the
  // weights themselves are packed by the rule below, once and not in every run. It takes as many
  // bytes again, so whoever trains beside it does without.
  bool packs = false;
  PackedRule packed{};  // empty: the kernels pack nothing
  // Whether kernels read memory of the host where they must: then weights that only what is made
  // once reads rest there (set_aside in prepare.h).
  bool reaches_host = false;
  // Whether the kernel reads the operand of this pair of the op's some_alias before it writes the
  // result over it. Empty: never.
  std::function<bool(ir::Op, const ir::Attrs&, const std::vector<ir::Type>& in,
                     const ir::OpDef::Alias&)>
      overwrites{};
  // Whether its attention cuts windows out of an image itself (transforms: fuse_windows), with
  // these attributes and q of this type. Empty: never.
  std::function<bool(const ir::Attention&, const ir::Type& q)> cuts_windows{};
  // Whether norms and products of i8 quantise their results themselves (transforms: fuse_bytes).
  bool gives_bytes = false;
  // Whether a kernel of the op takes and gives elements of this type. Empty: always.
  std::function<bool(ir::Op, ir::DType)> supports{};

  std::int64_t aligned(std::int64_t bytes) const {
    return (bytes + alignment - 1) / alignment * alignment;
  }
};

}  // namespace tessera::plan
