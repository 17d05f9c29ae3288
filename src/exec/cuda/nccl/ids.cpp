#include <cstdlib>
#include <span>

#include "base/check.h"
#include "exec/cuda/nccl/nccl.h"

namespace tessera::exec::cuda {
namespace {

// An id, or why there is none.
struct Letter {
  NcclId id{};
  char reason[240] = "";
};

Letter letter_of(const std::function<NcclId()>& make) {
  Letter out;
  try {
    out.id = make();
  } catch (const Error& e) {
    e.message.copy(out.reason, sizeof(out.reason) - 1);
    if (out.reason[0] == '\0') out.reason[0] = '?';
  }
  return out;
}

void check(const Letter& letter, int from) {
  if (letter.reason[0] == '\0') return;
  throw Error(ErrorKind::device,
              "rank " + std::to_string(from) +
                  " of a group could not begin to join the cards: " + letter.reason,
              "NCCL", "--comm mpi stages messages through the host instead");
}

}  // namespace

std::vector<std::string> nccl_files() {
  const char* named = std::getenv("TESSERA_NCCL_LIBRARY");
  if (named && *named) return {named};
  return {"libnccl.so.2", "libnccl.so"};
}

NcclId agree_on_id(comm::Comm& group, const std::function<NcclId()>& make) {
  Letter letter;
  if (group.rank() == 0) letter = letter_of(make);
  group.broadcast(std::as_writable_bytes(std::span(&letter, 1)), 0);
  check(letter, 0);
  return letter.id;
}

std::vector<std::vector<NcclId>> agree_on_pairs(comm::Comm& group, const std::vector<bool>& sends,
                                                const std::function<NcclId()>& make) {
  const auto ranks = static_cast<std::size_t>(group.size());
  CHECK(sends.size() == ranks, "a rank says of every other whether it sends there");
  std::vector<Letter> mine(ranks), all(ranks * ranks);
  for (std::size_t to = 0; to < ranks; ++to)
    if (sends[to]) mine[to] = letter_of(make);
  const std::vector<std::int64_t> counts(ranks, static_cast<std::int64_t>(ranks * sizeof(Letter)));
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), counts);
  std::vector<std::vector<NcclId>> out(ranks, std::vector<NcclId>(ranks));
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to) {
      check(all[from * ranks + to], static_cast<int>(from));
      out[from][to] = all[from * ranks + to].id;
    }
  return out;
}

}  // namespace tessera::exec::cuda
