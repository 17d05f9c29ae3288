// Where the elements of a tensor lie on one rank: boxes of the global tensor, each contiguous in
// one of the rank's persistent buffers. Convention: a bucket that data axes share is cut as one
// flat range, straight through tensors, so a tensor may have several boxes here.
#pragma once

#include <vector>

#include "ir/type.h"
#include "transforms/transforms.h"

namespace tessera::run {

struct ShardBox {
  ir::Shape begin, extent;  // of the global tensor
  std::int64_t offset = 0;  // elements into the buffer
};

// Of a tensor in a bucket whose buffer has this (global) type; of a tensor with a buffer of its
// own.
std::vector<ShardBox> boxes_in_bucket(const transforms::Bucket& bucket,
                                      const transforms::Bucket::Entry& entry, const ir::Type& type,
                                      const ir::Mesh& mesh, int rank);
std::vector<ShardBox> boxes_of_whole(const ir::Type& type, const ir::Mesh& mesh, int rank);

// Of several ranks with the same elements the first keeps them for all: the one that writes them to
// files.
bool keeps(const ir::Type& type, const ir::Mesh& mesh, int rank);

// The box of a row-major tensor.
std::vector<double> cut_out(const std::vector<double>& whole, const ir::Shape& shape,
                            const ShardBox& box);
void put_back(std::vector<double>& whole, const ir::Shape& shape, const ShardBox& box,
              const std::vector<double>& part);

}  // namespace tessera::run
