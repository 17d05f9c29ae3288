// Residual networks, as torchvision's ResNet (stride on the 3x3 of a bottleneck), with free widths,
// stages and stem. Legend: b batch, x y pixel, c channel in, o channel out, k l filter tap. One
// walk over the architecture serves parameters and program.
#include "models/program.h"

#include <algorithm>
#include <cmath>

namespace tessera::models {
namespace {

using namespace ir;

// The layers that the walk meets, in order. `relu` follows a batch norm; a block ends with the sum
// of its branch and its shortcut.
struct ConvNorm {
  std::string conv, norm;  // torchvision's names
  std::int64_t in, out, size, stride;
  const char
      *in_dim = "channel_in",
      *out_dim =
          "channel";  // "hidden": inside a block, where ranks of a tensor axis may share channels
};
struct Block {
  std::string name;
  std::vector<ConvNorm> branch;
  std::vector<ConvNorm> shortcut;  // empty: the identity
};
struct Net {
  ConvNorm stem;
  std::vector<Block> blocks;
  std::int64_t features;
};

Net net_of(const ModelConfig& m) {
  const bool bottleneck = m.block == "bottleneck";
  const std::int64_t expansion = bottleneck ? 4 : 1;
  const bool cifar = m.stem == "cifar";
  Net net{{.conv = "conv1",
           .norm = "bn1",
           .in = m.channels,
           .out = m.width,
           .size = cifar ? 3 : 7,
           .stride = cifar ? 1 : 2},
          {},
          m.width};
  for (std::size_t stage = 0; stage < m.layers.size(); ++stage)
    for (std::int64_t i = 0; i < m.layers[stage]; ++i) {
      const std::int64_t planes = m.width << stage, stride = stage > 0 && i == 0 ? 2 : 1,
                         in = net.features, out = planes * expansion;
      Block block{"layer" + std::to_string(stage + 1) + "." + std::to_string(i), {}, {}};
      const auto conv = [&](int n, std::int64_t from, std::int64_t to, std::int64_t size,
                            std::int64_t step) {
        const std::string number = std::to_string(n);
        block.branch.push_back({.conv = block.name + ".conv" + number,
                                .norm = block.name + ".bn" + number,
                                .in = from,
                                .out = to,
                                .size = size,
                                .stride = step});
      };
      if (bottleneck) {
        conv(1, in, planes, 1, 1);
        conv(2, planes, planes, 3, stride);
        conv(3, planes, out, 1, 1);
      } else {
        conv(1, in, planes, 3, stride);
        conv(2, planes, planes, 3, 1);
      }
      block.branch[0].out_dim = block.branch[1].in_dim = "hidden";
      if (stride != 1 || in != out)
        block.shortcut = {{.conv = block.name + ".downsample.0",
                           .norm = block.name + ".downsample.1",
                           .in = in,
                           .out = out,
                           .size = 1,
                           .stride = stride}};
      net.blocks.push_back(std::move(block));
      net.features = out;
    }
  return net;
}

void add_parameters(std::vector<Param>& out, const ConvNorm& l) {
  // Kaiming normal, fan out.
  const double fan_out = static_cast<double>(l.out * l.size * l.size);
  Param conv{.name = l.conv + ".weight",
             .shape = {l.size, l.size, l.in, l.out},
             .dims = {"tap", "tap", l.in_dim, l.out_dim},
             .init = {Init::normal, std::sqrt(2.0 / fan_out)},
             .decay = true,
             .torch_shape = {l.out, l.in, l.size, l.size},
             .torch_perm = {2, 3, 1, 0},
             .split_shape = {}};
  out.push_back(conv);
  const auto vector = [&](const char* name, Init::Kind init, bool buffer) {
    out.push_back({.name = l.norm + name,
                   .shape = {l.out},
                   .dims = {l.out_dim},
                   .init = {init},
                   .decay = false,
                   .torch_shape = {l.out},
                   .torch_perm = {},
                   .split_shape = {},
                   .buffer = buffer});
  };
  vector(".weight", Init::ones, false);
  vector(".bias", Init::zeros, false);
  vector(".running_mean", Init::zeros, true);
  vector(".running_var", Init::ones, true);
}

// The equations of one program: how a convolution and its norm are written depends on the mode
// alone.
struct Writer {
  Builder& b;
  const Mode& mode;
  const ParamOf& param;
  struct Statistics {
    std::string scope, name;
    std::vector<Var> in;
    BatchNorm attrs;
  };
  std::vector<Statistics> later = {};

  Var conv(Var x, const ConvNorm& l) {
    return b.emit1(Op::conv, Conv{l.stride, l.size / 2}, {x, param(l.conv + ".weight")}, "conv");
  }

  Var norm(Var x, const std::string& name) {
    const Var gain = param(name + ".weight"), bias = param(name + ".bias");
    const Var mean = param(name + ".running_mean"), variance = param(name + ".running_var");
    const Shape shape = b.type(x).shape;
    BatchNorm attrs;
    attrs.momentum = mode.momentum;
    attrs.groups = mode.batch_statistics ? mode.groups : 1;
    if (!mode.batch_statistics)
      return b.emit1(Op::batch_norm_fixed, attrs, {x, mean, variance, gain, bias}, "norm");
    const std::vector<Var> sums = b.emit(Op::moments, attrs, {x, mean}, {"sum", "sumsq"});
    attrs.samples = shape[0];
    attrs.pixels = shape[1] * shape[2];
    later.push_back({.scope = b.current_scope(),
                     .name = name,
                     .in = {mean, variance, sums[0], sums[1], mean},
                     .attrs = attrs});
    return b.emit(Op::batch_norm, attrs, {x, sums[0], sums[1], mean, gain, bias},
                  {"norm", "mean", "rstd"})[0];
  }

  // All at the end: nothing waits for them, and what they need of other ranks travels together.
  void write_statistics() {
    const std::string scope = b.current_scope();
    for (const Statistics& s : later) {
      b.set_scope(s.scope);
      const std::vector<Var> now =
          b.emit(Op::running_stats, s.attrs, s.in, {"running_mean", "running_var"});
      b.output(s.name + ".running_mean", now[0], input_of(s.in[0]));
      b.output(s.name + ".running_var", now[1], input_of(s.in[1]));
    }
    b.set_scope(scope);
  }

  const std::string& input_of(Var v) const {
    const auto& inputs = b.program().inputs;
    return std::find_if(inputs.begin(), inputs.end(), [&](const Input& in) { return in.var == v; })
        ->name;
  }

  Var conv_norm(Var x, const ConvNorm& l) {
    const auto scope = b.scope(l.conv.substr(l.conv.rfind('.') + 1));
    return norm(conv(x, l), l.norm);
  }
  Var relu(Var x) { return b.emit1(Op::relu, None{}, {x}, "relu"); }
};

std::vector<Param> resnet_parameters(const ModelConfig& m) {
  const Net net = net_of(m);
  std::vector<Param> out;
  add_parameters(out, net.stem);
  for (const Block& block : net.blocks) {
    for (const ConvNorm& l : block.branch) add_parameters(out, l);
    for (const ConvNorm& l : block.shortcut) add_parameters(out, l);
  }
  const Init uniform{Init::uniform, 1.0 / std::sqrt(static_cast<double>(net.features))};
  out.push_back({.name = "fc.weight",
                 .shape = {m.classes, net.features},
                 .dims = {"class", "channel"},
                 .init = uniform,
                 .decay = true,
                 .torch_shape = {m.classes, net.features},
                 .torch_perm = {},
                 .split_shape = {}});
  out.push_back({.name = "fc.bias",
                 .shape = {m.classes},
                 .dims = {"class"},
                 .init = uniform,
                 .decay = false,
                 .torch_shape = {m.classes},
                 .torch_perm = {},
                 .split_shape = {}});
  return out;
}

Var resnet_forward(Builder& b, const ModelConfig& m, Var images, const Mode& mode,
                   const ParamOf& param) {
  const Net net = net_of(m);
  Writer w{b, mode, param};
  Var x = images;
  {
    const auto scope = b.scope("stem");
    x = w.relu(w.conv_norm(x, net.stem));
    if (m.stem == "imagenet")
      x = b.emit(Op::max_pool, Pool{.size = 3, .stride = 2, .pad = 1, .rows = 0, .cols = 0}, {x},
                 {"pool", "which"})[0];
    x = b.mark("residual", x, "residual");
  }
  for (const Block& block : net.blocks) {
    const auto scope = b.scope(block.name);
    Var y = x;
    for (std::size_t i = 0; i < block.branch.size(); ++i) {
      y = w.conv_norm(y, block.branch[i]);
      if (i + 1 < block.branch.size()) y = w.relu(y);
    }
    if (!block.shortcut.empty()) {
      const auto inner = b.scope("downsample");
      x = w.conv_norm(x, block.shortcut[0]);
    }
    x = b.mark("residual", w.relu(b.add(y, x, "sum")), "residual");
  }
  w.write_statistics();
  const auto scope = b.scope("head");
  const Shape shape = b.type(x).shape;
  x = b.scale(b.sum("bxyc->bc", x, "total"), 1.0 / static_cast<double>(shape[1] * shape[2]),
              "pooled");
  return b.add("bk,k->bk", b.contract("bc,kc->bk", x, param("fc.weight"), "logits_"),
               param("fc.bias"), "logits");
}

}  // namespace

const FamilyProgram resnet_program = {resnet_parameters, resnet_forward};

}  // namespace tessera::models
