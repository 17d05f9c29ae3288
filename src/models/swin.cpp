// Swin Transformer, version 1 (Liu et al. 2021), as torchvision writes it: attention within windows
// that are shifted in every other block, and between stages 2 x 2 tokens merged into one of twice
// the width. Every size is free; what does not divide is padded as torchvision does. Legend: b
// batch, i j row and column of a token, w window, t token of a window, c channel (dim), n of q/k/v,
// h head, d head dim, f mlp. Between blocks tokens stay an image [b,i,j,c]; inside attention they
// are windows [b,w,t,c].
#include "models/program.h"

#include <cmath>

namespace tessera::models {
namespace {

using namespace ir;

constexpr double norm_eps = 1e-5;
constexpr Init linear_init{Init::truncated_normal, 0.02};

// torchvision's features: 0 the embedding, then stages and mergings in turn.
std::string block_name(std::size_t stage, std::int64_t block) {
  return "features." + std::to_string(2 * stage + 1) + "." + std::to_string(block) + ".";
}
std::string merging_name(std::size_t stage) {
  return "features." + std::to_string(2 * stage + 2) + ".";
}
std::int64_t width_of(const ModelConfig& m, std::size_t stage) { return m.dim << stage; }
std::int64_t mlp_of(const ModelConfig& m, std::size_t stage) {
  return static_cast<std::int64_t>(static_cast<double>(width_of(m, stage)) * m.mlp_ratio);
}

std::int64_t padded(std::int64_t extent, std::int64_t size) {
  return (extent + size - 1) / size * size;
}

// Zeros after the last row and column, up to multiples of `size`.
Var pad_image(Builder& b, Var x, std::int64_t size) {
  for (const int dim : {1, 2}) {
    const std::int64_t extent = b.type(x).shape[static_cast<std::size_t>(dim)],
                       after = padded(extent, size) - extent;
    if (after > 0) x = b.emit1(Op::pad, Pad{dim, 0, after}, {x}, "padded");
  }
  return x;
}

std::vector<Param> swin_parameters(const ModelConfig& m) {
  std::vector<Param> out;
  // 1-D tensors do not decay.
  const auto add = [&](std::string name, Shape shape, std::vector<std::string> dims, Init init,
                       Shape torch_shape) -> Param& {
    const bool decay = torch_shape.size() > 1;
    out.push_back({.name = std::move(name),
                   .shape = std::move(shape),
                   .dims = std::move(dims),
                   .init = init,
                   .decay = decay,
                   .torch_shape = std::move(torch_shape),
                   .torch_perm = {},
                   .split_shape = {}});
    return out.back();
  };
  const auto norm = [&](const std::string& name, std::int64_t c) {
    add(name + ".weight", {c}, {"dim"}, {Init::ones}, {c});
    add(name + ".bias", {c}, {"dim"}, {Init::zeros}, {c});
  };
  const std::int64_t p = m.patch;
  const Init conv{Init::uniform, 1.0 / std::sqrt(static_cast<double>(m.channels * p * p))};
  add("features.0.0.weight", {p, p, m.channels, m.dim}, {"patch", "patch", "channel", "dim"}, conv,
      {m.dim, m.channels, p, p})
      .torch_perm = {2, 3, 1, 0};
  add("features.0.0.bias", {m.dim}, {"dim"}, conv, {m.dim});
  norm("features.0.2", m.dim);
  for (std::size_t s = 0; s < m.depths.size(); ++s) {
    const std::int64_t c = width_of(m, s), h = m.stage_heads[s], d = c / h, f = mlp_of(m, s);
    const std::int64_t offsets = (2 * m.window_h - 1) * (2 * m.window_w - 1);
    for (std::int64_t i = 0; i < m.depths[s]; ++i) {
      const std::string l = block_name(s, i);
      norm(l + "norm1", c);
      add(l + "attn.relative_position_bias_table", {offsets, h}, {"offset", "heads"}, linear_init,
          {offsets, h})
          .decay = false;
      add(l + "attn.qkv.weight", {3, h, d, c}, {"qkv", "heads", "head_dim", "dim"}, linear_init,
          {3 * c, c});
      add(l + "attn.qkv.bias", {3, h, d}, {"qkv", "heads", "head_dim"}, {Init::zeros}, {3 * c});
      add(l + "attn.proj.weight", {c, h, d}, {"dim", "heads", "head_dim"}, linear_init, {c, c});
      add(l + "attn.proj.bias", {c}, {"dim"}, {Init::zeros}, {c});
      norm(l + "norm2", c);
      add(l + "mlp.0.weight", {f, c}, {"mlp", "dim"}, linear_init, {f, c});
      add(l + "mlp.0.bias", {f}, {"mlp"}, {Init::zeros}, {f});
      add(l + "mlp.3.weight", {c, f}, {"dim", "mlp"}, linear_init, {c, f});
      add(l + "mlp.3.bias", {c}, {"dim"}, {Init::zeros}, {c});
    }
    if (s + 1 == m.depths.size()) break;
    // torchvision joins the four tokens of a square column by column, patchify row by row: the
    // weights are turned, the tokens are not.
    const std::string merging = merging_name(s);
    Param& reduction = add(merging + "reduction.weight", {2 * c, 2, 2, c},
                           {"dim", "patch", "patch", "dim"}, linear_init, {2 * c, 4 * c});
    reduction.split_shape = {2 * c, 2, 2, c};
    reduction.torch_perm = {0, 2, 1, 3};
    for (const char* what : {"weight", "bias"}) {
      const Init init{what[0] == 'w' ? Init::ones : Init::zeros};
      Param& part =
          add(merging + "norm." + what, {2, 2, c}, {"patch", "patch", "dim"}, init, {4 * c});
      part.split_shape = {2, 2, c};
      part.torch_perm = {1, 0, 2};
    }
  }
  const std::int64_t last = width_of(m, m.depths.size() - 1);
  norm("norm", last);
  add("head.weight", {m.classes, last}, {"class", "dim"}, linear_init, {m.classes, last});
  add("head.bias", {m.classes}, {"class"}, {Init::zeros}, {m.classes});
  return out;
}

// Writes the forward program: embeddings, stages of blocks with mergings between them, and the
// head.
struct SwinForward {
  Builder& b;
  const ModelConfig& m;
  const Var images;
  const Mode& mode;
  const ParamOf& param;
  const std::int64_t batch = b.type(images).shape[0];
  const DType real = b.type(images).dtype;
  Var rng = none;  // declared when first needed

  Var drop_path(Var x, double rate) {
    if (!mode.random || rate <= 0) return x;
    if (rng == none) rng = b.input(Input::scalar, "rng", {DType::i64, {3}, {}}, {}, Role::key);
    return b.emit1(Op::dropout,
                   Dropout{.rate = rate,
                           .per_sample = true,
                           .stream = b.current_scope() + ".drop_path",
                           .base = 0},
                   {x, rng}, "drop_path");
  }
  Var layer_norm(Var x, Var gain, Var bias) {
    return b.emit(Op::layer_norm, Norm{norm_eps}, {x, gain, bias}, {"y", "mean", "rstd"})[0];
  }
  Var norm(Var x, const std::string& p) {
    return layer_norm(x, param(p + ".weight"), param(p + ".bias"));
  }

  // A convolution whose stride is its size: what is left over at the right and bottom is not seen.
  Var embed() {
    const auto scope = b.scope("embeddings");
    const std::int64_t rows = m.image_h / m.patch, columns = m.image_w / m.patch;
    Var x = images;
    if (rows * m.patch != m.image_h)
      x = b.emit1(Op::slice, Slice{1, 0, rows * m.patch}, {x}, "rows");
    if (columns * m.patch != m.image_w)
      x = b.emit1(Op::slice, Slice{2, 0, columns * m.patch}, {x}, "columns");
    x = b.emit1(Op::patchify, Patch{m.patch, 0}, {x}, "patches");
    x = b.add("btc,c->btc", b.contract("btpqc,pqcd->btd", x, param("features.0.0.weight"), "conv"),
              param("features.0.0.bias"), "tokens");
    x = norm(b.reshape(x, {batch, rows, columns, m.dim}), "features.0.2");
    return b.mark("residual", x, "residual", 1);
  }

  Var attention(Var y, const std::string& a, std::int64_t heads, bool shifted) {
    const Shape s = b.type(y).shape;
    const auto shift_of = [&](std::int64_t extent, std::int64_t size) {
      return shifted && size < padded(extent, size) ? size / 2 : 0;
    };
    const Shape size = {m.window_h, m.window_w},
                shift = {shift_of(s[1], m.window_h), shift_of(s[2], m.window_w)},
                image = {s[1], s[2]};
    const bool mask = shift[0] + shift[1] > 0;
    y = b.emit1(Op::window, Window{size, shift, {}}, {y}, "windows");
    const Var qkv = b.add("nbwthd,nhd->nbwthd",
                          b.contract("bwtc,nhdc->nbwthd", y, param(a + "qkv.weight"), "qkv_"),
                          param(a + "qkv.bias"), "qkv");
    std::vector<Var> in = b.emit(Op::unstack, None{}, {qkv}, {"q", "k", "v"});
    in.push_back(b.emit1(Op::bias_table, BiasTable{size},
                         {param(a + "relative_position_bias_table")}, "bias"));
    if (mask)
      in.push_back(b.emit1(Op::window_mask,
                           WindowMask{.size = size, .shift = shift, .image = image, .dtype = real},
                           {}, "mask"));
    const double scale = 1.0 / std::sqrt(static_cast<double>(s[3] / heads));
    const Var o = b.emit(Op::attention, Attention{scale, true, mask}, in, {"o", "lse"})[0];
    y = b.add("bwtc,c->bwtc", b.contract("bwthd,chd->bwtc", o, param(a + "proj.weight"), "proj_"),
              param(a + "proj.bias"), "proj");
    return b.emit1(Op::unwindow, Window{size, shift, image}, {y}, "y");
  }

  Var mlp(Var y, const std::string& l) {
    Var z = b.add("bijf,f->bijf", b.contract("bijc,fc->bijf", y, param(l + "mlp.0.weight"), "fc1_"),
                  param(l + "mlp.0.bias"), "fc1");
    z = b.emit1(Op::gelu, Gelu{false}, {z}, "gelu");
    return b.add("bijc,c->bijc", b.contract("bijf,cf->bijc", z, param(l + "mlp.3.weight"), "fc2_"),
                 param(l + "mlp.3.bias"), "fc2");
  }

  // Runs `body` in a scope of its own: the groups of the bench.
  template <class Body>
  Var in_scope(const char* name, const Body& body) {
    const auto scope = b.scope(name);
    return body();
  }

  Var block(Var x, const std::string& l, std::int64_t heads, bool shifted, double rate) {
    Var y = in_scope("ln_1", [&] { return norm(x, l + "norm1"); });
    y = in_scope("msa", [&] { return drop_path(attention(y, l + "attn.", heads, shifted), rate); });
    x = in_scope("residual_1", [&] { return b.add(x, y, "x"); });
    y = in_scope("ln_2", [&] { return norm(x, l + "norm2"); });
    y = in_scope("mlp", [&] { return drop_path(mlp(y, l), rate); });
    return in_scope("residual_2",
                    [&] { return b.mark("residual", b.add(x, y, "x"), "residual", 1); });
  }

  Var merge(Var x, const std::string& l) {
    const auto scope = b.scope("merge");
    x = pad_image(b, x, 2);
    const Shape s = b.type(x).shape;
    x = b.reshape(b.emit1(Op::patchify, Patch{2, 0}, {x}, "squares"),
                  {batch, s[1] / 2, s[2] / 2, 4 * s[3]});
    x = layer_norm(x, b.reshape(param(l + "norm.weight"), {4 * s[3]}),
                   b.reshape(param(l + "norm.bias"), {4 * s[3]}));
    x = b.contract("bijc,dc->bijd", x,
                   b.reshape(param(l + "reduction.weight"), {2 * s[3], 4 * s[3]}), "reduced");
    return b.mark("residual", x, "residual", 1);
  }

  Var logits() {
    std::int64_t blocks = 0, at = 0;
    for (const std::int64_t depth : m.depths) blocks += depth;
    Var x = embed();
    for (std::size_t s = 0; s < m.depths.size(); ++s) {
      const auto stage = b.scope("stages." + std::to_string(s));
      for (std::int64_t i = 0; i < m.depths[s]; ++i, ++at) {
        const auto scope = b.scope("blocks." + std::to_string(i));
        // Stochastic depth grows linearly over the blocks of all stages, 0 in the first.
        const double rate =
            blocks > 1 ? m.drop_path * static_cast<double>(at) / static_cast<double>(blocks - 1)
                       : 0.0;
        x = block(x, block_name(s, i), m.stage_heads[s], i % 2 == 1, rate);
      }
      if (s + 1 < m.depths.size()) x = merge(x, merging_name(s));
    }
    x = in_scope("ln_final", [&] {
      const Var y = norm(x, "norm");
      const Shape& s = b.type(y).shape;
      const double tokens = static_cast<double>(s[1] * s[2]);
      return b.scale(b.sum("bijc->bc", y, "total"), 1.0 / tokens, "pooled");
    });
    const auto scope = b.scope("head");
    return b.add("bk,k->bk", b.contract("bc,kc->bk", x, param("head.weight"), "logits_"),
                 param("head.bias"), "logits");
  }
};

Var swin_forward(Builder& b, const ModelConfig& m, Var images, const Mode& mode,
                 const ParamOf& param) {
  return SwinForward{.b = b, .m = m, .images = images, .mode = mode, .param = param}.logits();
}

std::vector<DerivedTensor> swin_derived(const ModelConfig& m) {
  const std::int64_t w = m.window_w, tokens = m.window_h * w;
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < tokens; ++i)
    for (std::int64_t j = 0; j < tokens; ++j)
      index.push_back((i / w - j / w + m.window_h - 1) * (2 * w - 1) + i % w - j % w + w - 1);
  std::vector<DerivedTensor> out;
  for (std::size_t s = 0; s < m.depths.size(); ++s)
    for (std::int64_t i = 0; i < m.depths[s]; ++i)
      out.push_back({block_name(s, i) + "attn.relative_position_index", {tokens * tokens}, index});
  return out;
}

}  // namespace

const FamilyProgram swin_program = {swin_parameters, swin_forward, swin_derived};

}  // namespace tessera::models
