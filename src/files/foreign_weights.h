// Weight files that are not safetensors, told by their first bytes, and how one is converted.
// Convention: nothing of them is read. A pickle is a program, and running it is the reader's risk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace tessera::files {

// How many bytes of a file's beginning refuse_foreign() looks at.
inline constexpr std::size_t foreign_front = 16;

// Error(weights) that says what the file is and prints the command that converts it, where its
// first bytes are those of PyTorch's, NumPy's, HDF5's, GGUF's or ONNX's files.
void refuse_foreign(const std::filesystem::path& path, std::span<const std::byte> front);

}  // namespace tessera::files
