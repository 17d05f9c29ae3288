#include "exec/cuda/nccl/nccl.h"

#include "exec/cuda/nccl/table.h"

namespace tessera::exec::cuda {
namespace {

std::string dotted(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

struct Found {
  NcclTable table;
  int version = 0;
  std::string missing;
};

Found look() {
  Found out;
  const Library library = Library::find(nccl_files());
  if (!library) {
    out.missing = "NCCL was not found: " + library.error();
    return out;
  }
  try {
    out.table = NcclTable(library);
  } catch (const Error& e) {
    out.missing = e.message;
    return out;
  }
  if (out.table.version(&out.version) != ncclSuccess) out.version = 0;
  // 2.18 has non-blocking communicators with limits on what they take.
  if (out.version < 21800)
    out.missing =
        "NCCL 2.18 or newer is needed, found " + dotted(out.version) + " (" + library.name() + ")";
  return out;
}

const Found& found() {
  static const Found one = look();
  return one;
}

}  // namespace

std::string nccl_missing() { return found().missing; }
std::string nccl_version() { return found().version == 0 ? "" : dotted(found().version); }

const NcclTable& nccl() {
  if (!found().missing.empty())
    throw Error(ErrorKind::device, found().missing, "NCCL",
                "install libnccl2, or --comm mpi stages messages through the host instead");
  return found().table;
}

}  // namespace tessera::exec::cuda
