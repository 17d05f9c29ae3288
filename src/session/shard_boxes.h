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

// Boxes of a tensor stored in a bucket of global type `type`.
std::vector<ShardBox> boxes_in_bucket(const transforms::Bucket& bucket,
                                      const transforms::Bucket::Entry& entry, const ir::Type& type,
                                      const ir::Mesh& mesh, int rank);
// Boxes of a tensor that owns its buffer.
std::vector<ShardBox> boxes_of_whole(const ir::Type& type, const ir::Mesh& mesh, int rank);

// Whether this rank writes its elements to files: the first of several ranks that hold the same
// ones.
bool keeps(const ir::Type& type, const ir::Mesh& mesh, int rank);

// The box of a row-major tensor.
std::vector<double> cut_out(const std::vector<double>& whole, const ir::Shape& shape,
                            const ShardBox& box);
void put_back(std::vector<double>& whole, const ir::Shape& shape, const ShardBox& box,
              const std::vector<double>& part);

}  // namespace tessera::run
